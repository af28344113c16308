{{- /* Of every object, after its own. None of them is in a selector. */ -}}
{{- define "linger.labels" -}}
{{- $ours := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63) }}
{{- toYaml (merge $ours (include "linger.ofRelease" . | fromYaml) (.Values.commonLabels | default dict)) }}
{{- end }}

{{- /* Of the pods: without the chart's version, which alone is no reason to replace them. */ -}}
{{- define "linger.podLabels" -}}
{{- toYaml (merge (include "linger.ofRelease" . | fromYaml) (.Values.podLabels | default dict) (.Values.commonLabels | default dict)) }}
{{- end }}

{{- define "linger.ofRelease" -}}
app.kubernetes.io/instance: {{ quote .Release.Name }}
app.kubernetes.io/version: {{ quote .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ quote .Release.Service }}
{{- end }}

{{- define "linger.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* The Secret of a certificate that is not Linger's own; empty: it is. */ -}}
{{- define "linger.secret" -}}
{{- with .Values.certificates -}}
{{ .existingSecret | default (ternary "linger-tls" "" (.certManager).enabled) }}
{{- end }}
{{- end }}

{{- /* Whether the API server gives pods a wait while Linger is down; empty: it does not. Null: values of an older chart. */ -}}
{{- define "linger.floor" -}}
{{- $floor := toString (ternary "auto" .Values.floor (kindIs "invalid" .Values.floor)) }}
{{- $oldest := get (dict "auto" ">=1.37.0-0" "true" ">=1.36.0-0") $floor }}
{{- if and $oldest (semverCompare $oldest .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}

{{- define "linger.webhookAnnotations" -}}
{{- $given := .Values.certificates.webhookAnnotations | default dict }}
{{- $source := dict "cert-manager.io/inject-ca-from" (printf "%s/linger" .Release.Namespace) }}
{{- toYaml (ternary (merge $source $given) $given (.Values.certificates.certManager).enabled) }}
{{- end }}
