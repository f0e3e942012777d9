{{/* Whether the services are served with TLS: "true", else empty. */}}
{{- define "holdfast.tls" -}}
{{- if ne .Values.tls.mode "none" -}}true{{- end -}}
{{- end -}}

{{/* The Secret with a component's certificate; of a dict of root and name. */}}
{{- define "holdfast.tls.secret" -}}
{{- if eq .root.Values.tls.mode "secret" -}}
{{- .root.Values.tls.secretName -}}
{{- else -}}
{{- printf "%s-%s-tls" (include "holdfast.fullname" .root) .name -}}
{{- end -}}
{{- end -}}

{{/* The name that a component is checked for; of a dict of root and name. */}}
{{- define "holdfast.tls.serverName" -}}
{{- printf "%s-%s.%s.svc" (include "holdfast.fullname" .root) .name .root.Release.Namespace -}}
{{- end -}}

{{/* The Secret with the certificate of NATS's server; empty: in the clear. */}}
{{- define "holdfast.tls.nats" -}}
{{- if .Values.nats.enabled -}}
{{- if .Values.nats.tlsSecret -}}
{{- .Values.nats.tlsSecret -}}
{{- else if has .Values.tls.mode (list "chart" "certManager") -}}
{{- include "holdfast.tls.secret" (dict "root" . "name" "nats") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What services mount to reach NATS, as the sources of a projected volume. */}}
{{- define "holdfast.tls.natsSources" -}}
{{- with .Values.nats.credentialsSecret }}
{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: nats.creds}]}
{{- end }}
{{- end }}
{{- with include "holdfast.tls.nats" . }}
- secret: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with .Values.nats.caSecret }}
{{- if .name }}
- secret: {name: {{ .name }}, items: [{key: {{ .key }}, path: ca.crt}]}
{{- end }}
{{- end }}
{{- with .Values.nats.clientCertificateSecret }}
- secret: {name: {{ . }}, items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
{{- end }}
{{- end -}}

{{/* The components that call OperationService of runners, as JSON: about operations in the processes of plugins. */}}
{{- define "holdfast.operationCallers" -}}
{{- toJson (list "async-operation-monitor" "backup-runner" "restore-runner") -}}
{{- end -}}

{{/* The flags of TLS and of identity, as YAML; of a dict of root, name and facts. */}}
{{- define "holdfast.tls.flags" -}}
{{- $values := .root.Values -}}
{{- $flags := dict -}}
{{- $calls := has .name (fromJsonArray (include "holdfast.operationCallers" .root)) -}}
{{- if include "holdfast.tls" .root -}}
{{- $_ := set $flags "tls-cert-file" "/tls/tls.crt" -}}
{{- $_ := set $flags "tls-key-file" "/tls/tls.key" -}}
{{- if $values.tls.clientCASecret -}}{{- $_ := set $flags "tls-client-ca-file" "/tls-clients/ca.crt" -}}{{- end -}}
{{- if $calls -}}
{{- $names := list -}}
{{- range $peer := list "backup-runner" "restore-runner" -}}
{{- $names = append $names (printf "%s=%s" $peer (include "holdfast.tls.serverName" (dict "root" $.root "name" $peer))) -}}
{{- end -}}
{{- $_ := set $flags "tls-ca-file" "/tls/ca.crt" -}}
{{- $_ := set $flags "tls-server-names" (join "," $names) -}}
{{- end -}}
{{- end -}}
{{- with $values.authAudience -}}
{{- $_ := set $flags "auth-audience" . -}}
{{- if $calls -}}{{- $_ := set $flags "auth-token-file" "/token/token" -}}{{- end -}}
{{- end -}}
{{- if or (include "holdfast.tls.nats" .root) $values.nats.caSecret.name -}}{{- $_ := set $flags "nats-ca-file" "/nats/ca.crt" -}}{{- end -}}
{{- if $values.nats.clientCertificateSecret -}}
{{- $_ := set $flags "nats-cert-file" "/nats/tls.crt" -}}
{{- $_ := set $flags "nats-key-file" "/nats/tls.key" -}}
{{- end -}}
{{- if $values.nats.credentialsSecret.name -}}{{- $_ := set $flags "nats-creds-file" "/nats/nats.creds" -}}{{- end -}}
{{- toYaml $flags -}}
{{- end -}}

{{/* The components that have a certificate, as JSON. */}}
{{- define "holdfast.tls.components" -}}
{{- $all := keys (fromYaml (include "holdfast.services" .)) | sortAlpha -}}
{{- if and .Values.nats.enabled (not .Values.nats.tlsSecret) -}}{{- $all = append $all "nats" -}}{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The DNS names of a component's certificate, as JSON; of a dict of root and name. localhost is for forwarded ports. */}}
{{- define "holdfast.tls.names" -}}
{{- $service := printf "%s-%s" (include "holdfast.fullname" .root) .name -}}
{{- $full := include "holdfast.tls.serverName" . -}}
{{- $names := list $service (trimSuffix ".svc" $full) $full (printf "%s.cluster.local" $full) "localhost" -}}
{{- if eq .name "nats" -}}{{- $names = append $names (printf "*.%s-peers" $service) -}}{{- end -}}
{{- toJson (concat $names .root.Values.tls.extraNames) -}}
{{- end -}}

{{/*
With mode chart: when the certificates were made, in seconds since 1970, if an upgrade keeps them; else empty. All are made anew, with a new authority whose
key is kept nowhere, when one is missing, when their names have changed, and when half of their time is over.
*/}}
{{- define "holdfast.tls.kept" -}}
{{- $made := "" -}}
{{- $keep := true -}}
{{- range $name := fromJsonArray (include "holdfast.tls.components" .) -}}
{{- $id := dict "root" $ "name" $name -}}
{{- $there := default (dict) (lookup "v1" "Secret" $.Release.Namespace (include "holdfast.tls.secret" $id)) -}}
{{- $notes := default (dict) (dig "metadata" "annotations" (dict) $there) -}}
{{- $at := get $notes "holdfast.io/certificates-made" -}}
{{- $made = default $at $made -}}
{{- $age := sub (now | unixEpoch | int64) ($at | int64) -}}
{{- $half := mul $.Values.tls.validityDays 43200 -}}
{{- if or (not $at) (ne $at $made) (ne (get $notes "holdfast.io/certificate-names") (include "holdfast.tls.names" $id)) (ge $age $half) -}}
{{- $keep = false -}}
{{- end -}}
{{- end -}}
{{- if $keep -}}{{- $made -}}{{- end -}}
{{- end -}}
