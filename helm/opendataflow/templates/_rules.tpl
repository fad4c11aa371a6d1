{{/* What the operator may do where its resources are, as core/kubernetes/rights.py has it. No verb on Secrets, here or anywhere. */}}
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
  verbs: [get, list, watch, create, patch, delete, deletecollection]
{{- end }}
{{- end -}}

{{/* What freeing run pods and SparkApplications needs. */}}
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
