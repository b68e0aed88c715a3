{{- define "plimsoll.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "plimsoll.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "plimsoll.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "plimsoll.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "plimsoll.selectorLabels" -}}
app.kubernetes.io/name: {{ include "plimsoll.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selectorLabels" . }}
app.kubernetes.io/component: gateway
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "plimsoll.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "plimsoll.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- /* A key of a ConfigMap has no slashes: ladders/chat.toml is kept as ladders.chat.toml. */ -}}
{{- define "plimsoll.rulesKey" -}}
{{- replace "/" "." . }}
{{- end }}

{{- /* What both monitors say of the admin port. */ -}}
{{- define "plimsoll.scrape" -}}
- port: plimsoll-admin
  path: /metrics
  {{- if .root.Values.tls.secretName }}
  scheme: https
  tlsConfig:
    insecureSkipVerify: true # the certificate has the name of the Service, a scrape has the address of a pod
  {{- end }}
  interval: {{ .interval }}
  scrapeTimeout: 10s
  relabelings: # the operator names the port in a label that our metrics have
    - action: labeldrop
      regex: endpoint
{{- end }}

{{- /* Of which series there are how many requests in progress, of this release alone. */ -}}
{{- define "plimsoll.inFlight" -}}
sum(plimsoll_requests_in_flight{namespace="{{ .Release.Namespace }}",pod=~"{{ include "plimsoll.fullname" . }}-[^-]+-[^-]+"})
{{- end }}
