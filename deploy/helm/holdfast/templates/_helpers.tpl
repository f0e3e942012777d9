{{/* Names. Objects outside of the namespace have it in their name, so that two releases never meet. */}}
{{- define "holdfast.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 32 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 32 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "holdfast.fullname" .) -}}
{{- end -}}

{{/* Labels of every object; of a dict of root and name. */}}
{{- define "holdfast.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: holdfast
{{ include "holdfast.selector" . }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .name }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "holdfast.tag" -}}
{{- if .Values.image.repository -}}{{ .Chart.AppVersion }}{{- else -}}{{ default .Chart.AppVersion .Values.image.tag }}{{- end -}}
{{- end -}}

{{/* The container's security, which restricted pod security asks for. */}}
{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The Pod's. No user is named: the images run as 65532, and a platform may choose another one. */}}
{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "holdfast.pullSecrets" -}}
{{- range .Values.image.imagePullSecrets }}
- name: {{ ternary . (get (ternary (dict) . (kindIs "string" .)) "name") (kindIs "string" .) }}
{{- end }}
{{- end -}}

{{- define "holdfast.natsSecret" -}}
{{- if .Values.nats.urlSecret.name -}}{{ .Values.nats.urlSecret.name }}{{- else -}}{{ include "holdfast.fullname" . }}-nats{{- end -}}
{{- end -}}

{{/* How many copies the streams have: as many as the chart's NATS has servers, unless a value says otherwise. Empty: the services' own default. */}}
{{- define "holdfast.streamReplicas" -}}
{{- if .Values.nats.streamReplicas -}}
{{- if and .Values.nats.enabled (gt (int .Values.nats.streamReplicas) (int .Values.nats.replicas)) -}}
{{- fail (printf "nats.streamReplicas: %v copies need as many servers, and nats.replicas is %v" .Values.nats.streamReplicas .Values.nats.replicas) -}}
{{- end -}}
{{- .Values.nats.streamReplicas -}}
{{- else if and .Values.nats.enabled (gt (int .Values.nats.replicas) 1) -}}
{{- .Values.nats.replicas -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.credentialsSecret" -}}
{{- .Values.credentials.existingSecret | default .Values.credentials.name | default "cloud-credentials" -}}
{{- end -}}

{{/* A map, or a list of Kubernetes' form, of environment variables. */}}
{{- define "holdfast.env" -}}
{{- if kindIs "map" . -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- else if . -}}
{{- toYaml . }}
{{- end -}}
{{- end -}}

{{/* The account of a service; of a dict of root, name and values. */}}
{{- define "holdfast.account" -}}
{{- .values.serviceAccount.name | default (printf "%s-%s" (include "holdfast.fullname" .root) .name) -}}
{{- end -}}

{{/* The values of a service, or of movers. helm upgrade --reuse-values from a release whose chart did not have them gives none. */}}
{{- define "holdfast.serviceValues" -}}
{{- $own := dict "replicas" 1 "plugins" true "workDirSize" "2Gi" "serviceAccount" (dict "create" true) -}}
{{- toYaml (mergeOverwrite $own (deepCopy (default (dict) (index .root.Values .key)))) -}}
{{- end -}}

{{- define "holdfast.movers" -}}
{{- $own := dict "kubeletRoot" "/var/lib/kubelet" "serviceAccount" (dict "create" true) -}}
{{- toYaml (mergeOverwrite $own (deepCopy (default (dict) .Values.movers))) -}}
{{- end -}}

{{/* The image of movers and of the init container that waits in restored Pods. */}}
{{- define "holdfast.moverImage" -}}
{{- (fromYaml (include "holdfast.movers" .)).image | default (printf "%s/holdfast-volume-mover:%s" .Values.image.registry (include "holdfast.tag" .)) -}}
{{- end -}}

{{/* The account of movers. */}}
{{- define "holdfast.moverAccount" -}}
{{- (fromYaml (include "holdfast.movers" .)).serviceAccount.name | default (printf "%s-movers" (include "holdfast.fullname" .)) -}}
{{- end -}}

{{/* The names of the variables of volume-mover that movers get; of a dict of root and values. */}}
{{- define "holdfast.moverEnv" -}}
{{- $names := list "HTTP_PROXY" "HTTPS_PROXY" "NO_PROXY" -}}
{{- range list .root.Values.credentials.extraEnvVars .root.Values.configuration.extraEnvVars .root.Values.extraEnv .values.extraEnv -}}
{{- if kindIs "map" . -}}{{- $names = concat $names (keys .) -}}{{- else -}}{{- range . -}}{{- $names = append $names .name -}}{{- end -}}{{- end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | join "," -}}
{{- end -}}

{{/* The annotations of what exists while a hook runs only; of a dict of hook and weight, its order. */}}
{{- define "holdfast.hook" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* What a schema cannot state. */}}
{{- define "holdfast.check" -}}
{{/* Not kubeVersion of Chart.yaml: an API server that was built from source without its flags says v0.0.0. */}}
{{- if and (not (hasPrefix "v0.0.0" .Capabilities.KubeVersion.Version)) (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "the cluster is %s, and the preStop hooks of the chart need Kubernetes 1.30" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if ne (eq .Values.tls.mode "secret") (ne .Values.tls.secretName "") -}}
{{- fail "tls.secretName: names the Secret of tls.mode: secret, and of no other mode" -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "certManager") (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: tls.mode certManager needs the issuer of the certificates" -}}
{{- end -}}
{{- if and .Values.tls.clientCASecret (not (include "holdfast.tls" .)) -}}
{{- fail "tls.clientCASecret: has no effect with tls.mode: none" -}}
{{- end -}}
{{- if and (eq .Values.auth "none") (include "holdfast.tls" .) -}}
{{- fail "auth: none is accepted on loopback only, and with TLS the services listen for others; use kubernetes, or tls.mode: none" -}}
{{- end -}}
{{- if and (eq .Values.auth "none") .Values.authAudience -}}
{{- fail "authAudience: needs auth: kubernetes" -}}
{{- end -}}
{{- if and .Values.nats.enabled .Values.nats.caSecret.name -}}
{{- fail "nats.caSecret.name: is for a NATS of your own; nats.tlsSecret has the certificate of the chart's" -}}
{{- end -}}
{{- if and .Values.nats.tlsSecret (not .Values.nats.enabled) -}}
{{- fail "nats.tlsSecret: is for the chart's NATS; nats.caSecret has the authority of another one" -}}
{{- end -}}
{{- end -}}
