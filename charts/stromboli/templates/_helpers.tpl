{{/* What is added to names, -policy-check at most, has room in the 63 characters of a label. */}}
{{- define "stromboli.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/*
The release's name, with the chart's unless it says so already, as a Service may be called.  Of one that is cut a digest tells
it from others that begin like it.
*/}}
{{- define "stromboli.fullname" -}}
{{- $name := include "stromboli.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- if regexMatch "^[0-9]" $full }}
{{- $full = printf "%s-%s" .Chart.Name .Release.Name }}
{{- end }}
{{- $full = .Values.fullnameOverride | default $full | replace "." "-" }}
{{- $cut := printf "%s-%s" ($full | trunc 41 | trimSuffix "-") (sha256sum $full | trunc 8) }}
{{- gt (len $full) 50 | ternary $cut $full }}
{{- end }}

{{- define "stromboli.selector" -}}
app.kubernetes.io/name: {{ include "stromboli.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "stromboli.labels" -}}
{{ include "stromboli.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels with others, which go before: the chart, and the others. */}}
{{- define "stromboli.labelsWith" -}}
{{- toYaml (merge (dict) (last . | default dict) (include "stromboli.labels" (first .) | fromYaml)) }}
{{- end }}

{{/* The labels of a part that is not the service: the chart, and the part's name. */}}
{{- define "stromboli.labelsOf" -}}
{{- $name := printf "%s-%s" (include "stromboli.name" (first .)) (last .) }}
{{- include "stromboli.labelsWith" (list (first .) (dict "app.kubernetes.io/name" $name)) }}
{{- end }}

{{- define "stromboli.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "stromboli.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* The users that services are to the API server: this release's, and those of others. */}}
{{- define "stromboli.services" -}}
{{- $own := printf "system:serviceaccount:%s:%s" .Release.Namespace (include "stromboli.serviceAccount" .) }}
{{- prepend (.Values.otherServices | default list) $own | toJson }}
{{- end }}

{{/* The labels and annotations that name a queue. */}}
{{- define "stromboli.queueKeys" -}}
"scheduling.volcano.sh/queue-name", "volcano.sh/queue-name", "kueue.x-k8s.io/queue-name", "kai.scheduler/queue"
{{- end }}

{{/* What may name a queue and has a user: pods, PodGroups and workloads. */}}
{{- define "stromboli.workloadRules" -}}
- apiGroups: [""]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [pods, replicationcontrollers]
- apiGroups: [apps]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [daemonsets, deployments, replicasets, statefulsets]
- apiGroups: [batch, batch.volcano.sh]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [cronjobs, jobs]
- apiGroups: [scheduling.volcano.sh, scheduling.k8s.io]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [podgroups]
{{- range $group, $resources := .Values.workloads }}
- apiGroups: [{{ $group }}]
  apiVersions: ["*"]
  operations: [CREATE, UPDATE]
  resources: [{{ join ", " $resources }}]
{{- end }}
{{- end }}

{{/* How the port is spoken to. */}}
{{- define "stromboli.scheme" -}}
{{- if and .Values.tls.clientCertificates (not .Values.tls.secretName) }}
{{- fail "tls.clientCertificates needs tls.secretName: without it the port speaks HTTP, and asks for none" }}
{{- end }}
{{- .Values.tls.secretName | empty | ternary "http" "https" }}
{{- end }}

{{- define "stromboli.image" -}}
{{- $tag := printf ":%s" (.Values.image.tag | default .Chart.AppVersion) }}
{{- .Values.image.repository }}{{ .Values.image.digest | empty | ternary $tag (printf "@%s" .Values.image.digest) }}
{{- end }}

{{/* The pod of a Job that runs the image once: `root`, and as far as they differ `args`, `account`, `scheduler`. */}}
{{- define "stromboli.once" -}}
{{- with .scheduler }}
schedulerName: {{ . | quote }}
{{- end }}
restartPolicy: Never
{{- if .account }}
serviceAccountName: {{ .account | quote }}
{{- else }}
automountServiceAccountToken: false
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: stromboli
    image: {{ include "stromboli.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args: {{- toYaml .args | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 64Mi}
    securityContext: {{- toYaml .root.Values.securityContext | nindent 6 }}
    {{- with .volumeMounts }}
    volumeMounts: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with .volumes }}
volumes: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What comes before an installation or an upgrade, and goes when it went well. */}}
{{- define "stromboli.before" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
