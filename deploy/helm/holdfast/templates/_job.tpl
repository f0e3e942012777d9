{{/*
A Job that runs the command line before an installation or upgrade; of a dict of root, name, weight, args and resources. Its account has the same name.
*/}}
{{- define "holdfast.job" -}}
{{- $root := .root -}}
{{- $id := dict "root" $root "name" .name -}}
{{- $name := printf "%s-%s" (include "holdfast.fullname" $root) .name -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $id | nindent 4 }}
  annotations: {{- include "holdfast.hook" .weight | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 300
  template:
    metadata:
      labels: {{- mergeOverwrite (deepCopy (default (dict) $root.Values.podLabels)) (fromYaml (include "holdfast.labels" $id)) | toYaml | nindent 8 }}
      {{- with $root.Values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      restartPolicy: Never
      {{- with include "holdfast.pullSecrets" $root }}
      imagePullSecrets: {{- . | nindent 8 }}
      {{- end }}
      securityContext: {{- mergeOverwrite (fromYaml (include "holdfast.podSecurity" $root)) (deepCopy (default (dict) $root.Values.podSecurityContext)) | toYaml | nindent 8 }}
      {{- with $root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- with $root.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ printf "%s/holdfast:%s" $root.Values.image.registry (include "holdfast.tag" $root) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: {{- toYaml .args | nindent 12 }}
          resources:
            {{- with .resources }}
            {{- toYaml . | nindent 12 }}
            {{- else }}
            requests: {cpu: 25m, memory: 64Mi}
            limits: {memory: 128Mi}
            {{- end }}
          securityContext: {{- mergeOverwrite (fromYaml (include "holdfast.containerSecurity" $root)) (deepCopy (default (dict) $root.Values.containerSecurityContext)) | toYaml | nindent 12 }}
{{- end -}}
