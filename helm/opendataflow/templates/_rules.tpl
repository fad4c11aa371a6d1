{{/* The operator's rights in the namespaces of its resources, equal to core/kubernetes/rights.py. It has no right on Secrets anywhere. */}}
{{- define "opendataflow.operatorRules" -}}
- apiGroups: [opendataflow.io]
  resources: [datasets, dataflowjobs, dataflowactions]
  verbs: [list, watch]
- apiGroups: [opendataflow.io]
  resources: [dataflowactions]
  verbs: [get, delete]
- apiGroups: [opendataflow.io]
  resources: [datasets/status, dataflowjobs/status, dataflowactions/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.rbac.sparkApplications }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- end -}}

{{/* Rights to release run pods and SparkApplications. */}}
{{- define "opendataflow.cleanupRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
{{- if .Values.rbac.sparkApplications }}
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, list, patch]
{{- end }}
{{- end -}}
