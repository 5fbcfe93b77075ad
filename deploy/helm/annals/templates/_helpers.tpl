{{- define "annals.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "annals.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "annals.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The labels that select the pods of a component. Takes root and component. */ -}}
{{- define "annals.selector" -}}
app.kubernetes.io/name: {{ include "annals.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "annals.labels" -}}
{{ include "annals.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "annals.metadata" -}}
name: {{ include "annals.fullname" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "annals.labels" . | nindent 2 }}
{{- end -}}

{{- /* The settings of a role or of the proxy, completed by the defaults, as YAML. */ -}}
{{- define "annals.component" -}}
{{- $own := ternary .root.Values.proxy (index .root.Values.roles .component) (eq .component "proxy") -}}
{{- mergeOverwrite (deepCopy .root.Values.roleDefaults) (deepCopy ($own | default dict)) | toYaml -}}
{{- end -}}

{{- /* The components that are enabled, separated by spaces. */ -}}
{{- define "annals.roles" -}}
{{- $enabled := list -}}
{{- range $component := list "write" "read" "projector" "pipeline" "console" -}}
{{- if (include "annals.component" (dict "root" $ "component" $component) | fromYaml).enabled -}}
{{- $enabled = append $enabled $component -}}
{{- end -}}
{{- end -}}
{{- join " " $enabled -}}
{{- end -}}

{{- define "annals.components" -}}
{{- include "annals.roles" . -}}{{- if .Values.proxy.enabled }} proxy{{ end -}}
{{- end -}}

{{- define "annals.secret" -}}
{{- if .Values.secrets.existingSecret -}}
{{- .Values.secrets.existingSecret -}}
{{- else -}}
{{- if not .Values.secrets.values -}}
{{- fail "name a Secret with secrets.existingSecret, or set secrets.values" -}}
{{- end -}}
{{- range $name := list "ANNALS_EVENTSTORE" "ANNALS_POSTGRES" "ANNALS_HASH_KEY" "ANNALS_SEAL_KEY" -}}
{{- if not (index $.Values.secrets.values $name) -}}
{{- fail (printf "secrets.values.%s is not set" $name) -}}
{{- end -}}
{{- end -}}
{{- include "annals.fullname" . -}}
{{- end -}}
{{- end -}}

{{- /* Changes with the secrets, so that the pods restart. The content of an existing Secret is known to "helm upgrade" only. */ -}}
{{- define "annals.secret.checksum" -}}
{{- $data := dict -}}
{{- with .Values.secrets.existingSecret -}}
{{- $data = get (lookup "v1" "Secret" $.Release.Namespace .) "data" | default dict -}}
{{- end -}}
{{- dict "values" .Values.secrets "data" $data | toYaml | sha256sum -}}
{{- end -}}

{{- define "annals.serviceAccount" -}}
{{- default (ternary (include "annals.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "annals.host" -}}
{{ include "annals.fullname" .root }}-{{ .component }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{- /* What the pods of every component have in common. */ -}}
{{- define "annals.pod" -}}
{{- $own := include "annals.component" . | fromYaml -}}
serviceAccountName: {{ include "annals.serviceAccount" .root }}
automountServiceAccountToken: false
# Variables of services would be taken for settings.
enableServiceLinks: false
terminationGracePeriodSeconds: 60
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  fsGroup: {{ .user }}
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "annals.selector" . | nindent 8 }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "annals.container.security" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}
