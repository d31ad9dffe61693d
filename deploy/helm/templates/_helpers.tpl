{{- define "holdfast.labels" -}}
app: {{ .Release.Name }}
part: {{ .part }}
{{- end }}

{{- define "holdfast.image" -}}
image: {{ .Values.image | quote }}
{{- with .Values.imagePullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "holdfast.securityContext" -}}
runAsNonRoot: true
runAsUser: 10001
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "holdfast.stopTimeout" -}}
{{ add .Values.worker.grace 30 }}
{{- end }}
