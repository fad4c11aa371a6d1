{{/* The prefix of every name: at most 40 characters, so that names with a suffix fit into a label. */}}
{{- define "opendataflow.fullname" -}}
{{- $own := ternary .Release.Name (printf "%s-opendataflow" .Release.Name) (contains "dataflow" .Release.Name) -}}
{{- .Values.fullnameOverride | default $own | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The prefix of cluster-scoped names. It differs for releases with the same name in two namespaces. */}}
{{- define "opendataflow.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "opendataflow.fullname" .) -}}
{{- end -}}

{{- define "opendataflow.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "opendataflow.fullname" .) -}}
{{- end -}}

{{/* Selector labels, which never change for a release. Each object adds its component. */}}
{{- define "opendataflow.selector" -}}
app.kubernetes.io/name: opendataflow
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "opendataflow.labels" -}}
{{ include "opendataflow.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of an object, including the user's labels: each key once, and the user's label takes
precedence. The last element of the list is the map of the user's labels. */}}
{{- define "opendataflow.labelsWith" -}}
{{- toYaml (merge (deepCopy (index . 1)) (include "opendataflow.labels" (index . 0) | fromYaml)) -}}
{{- end -}}

{{- define "opendataflow.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "opendataflow.sparkImage" -}}
{{- printf "%s:%s" .Values.spark.image.repository (.Values.spark.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* "true" if the built-in Postgres is used. */}}
{{- define "opendataflow.builtIn" -}}
{{- if not .Values.database.existingSecret }}true{{ end -}}
{{- end -}}

{{- define "opendataflow.dsnSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-postgres" (include "opendataflow.fullname" .)) -}}
{{- end -}}

{{- define "opendataflow.dsnKey" -}}
{{- if include "opendataflow.builtIn" . }}dsn{{ else }}{{ .Values.database.secretKey }}{{ end -}}
{{- end -}}

{{/* The namespaces of Spark service accounts, as a JSON object with one field: helpers return text only. */}}
{{- define "opendataflow.sparkNamespaces" -}}
{{- $named := .Values.spark.namespaces | default .Values.namespaces -}}
{{- dict "all" (ternary $named list .Values.spark.enabled) | toJson -}}
{{- end -}}

{{/* "true" if the operator may read nodes. */}}
{{- define "opendataflow.readNodes" -}}
{{- if kindIs "invalid" .Values.rbac.readNodes }}{{ if not .Values.namespaces }}true{{ end }}{{ else if .Values.rbac.readNodes }}true{{ end -}}
{{- end -}}

{{- define "opendataflow.disruptionBudget" -}}
{{- if kindIs "invalid" .Values.podDisruptionBudget.enabled }}{{ if gt (int .Values.replicas) 1 }}true{{ end }}{{ else if .Values.podDisruptionBudget.enabled }}true{{ end -}}
{{- end -}}

{{/* The security context of the level "restricted" of the Pod Security Standards. */}}
{{- define "opendataflow.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "opendataflow.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Scheduling of the operator's pods and of the cleanup pod. */}}
{{- define "opendataflow.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Environment variables of every program of the operator's image. With a DSN, the program never writes to its home.
The address is a file, so that a changed password is used without a restart. */}}
{{- define "opendataflow.env" -}}
- {name: DATAFLOW_DSN_FILE, value: /etc/opendataflow/database/dsn}
- {name: DATAFLOW_HOME, value: /tmp}
- {name: DATAFLOW_LOG_FORMAT, value: {{ .Values.log.format }}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* `.addressVolume`: the volume with the address of the database. */}}
{{- define "opendataflow.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: {{ .addressVolume | default "database" }}, mountPath: /etc/opendataflow/database, readOnly: true}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* `.optional`: the program also runs without the Secret with the address. `.migrates`: its pod migrates the schema. */}}
{{- define "opendataflow.volumes" -}}
- {name: tmp, emptyDir: {}}
- name: database
  secret:
    secretName: {{ include "opendataflow.dsnSecret" . | quote }}
    items: [{key: {{ include "opendataflow.dsnKey" . | quote }}, path: dsn}]
    {{- if .optional }}
    optional: true
    {{- end }}
{{- if and .migrates .Values.database.migrationSecret }}
- name: migration
  secret:
    secretName: {{ .Values.database.migrationSecret | quote }}
    items: [{key: {{ .Values.database.secretKey | quote }}, path: dsn}]
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
