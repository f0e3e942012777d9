{{/*
A Job that runs the command line as a hook, with an account and a role of its own; of a dict of root, name, hook, weight, rules, cluster, args, deadline, ttl and resources.
cluster means that the rules hold in the whole cluster, else they hold in the namespace. deadline is in seconds, 300 by default; ttl, in seconds, is after
which time a Job that failed is removed, by default never.
*/}}
{{- define "holdfast.job" -}}
{{- $root := .root -}}
{{- $id := dict "root" $root "name" .name -}}
{{- $name := printf "%s-%s" (include "holdfast.fullname" $root) .name -}}
{{- $role := ternary (printf "%s:%s" (include "holdfast.clusterName" $root) .name) $name .cluster -}}
{{- $prefix := ternary "Cluster" "" .cluster -}}
{{- $before := include "holdfast.hook" (dict "hook" .hook "weight" -10) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $id | nindent 4 }}
  annotations: {{- $before | nindent 4 }}
automountServiceAccountToken: false
{{- if $root.Values.rbac.create }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  name: {{ $role }}
  {{- if not .cluster }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels: {{- include "holdfast.labels" $id | nindent 4 }}
  annotations: {{- $before | nindent 4 }}
rules: {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  name: {{ $role }}
  {{- if not .cluster }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  labels: {{- include "holdfast.labels" $id | nindent 4 }}
  annotations: {{- $before | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $prefix }}Role, name: {{ $role | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "holdfast.labels" $id | nindent 4 }}
  annotations: {{- include "holdfast.hook" (dict "hook" .hook "weight" .weight) | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: {{ .deadline | default 300 }}
  {{- with .ttl }}
  ttlSecondsAfterFinished: {{ . }}
  {{- end }}
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
