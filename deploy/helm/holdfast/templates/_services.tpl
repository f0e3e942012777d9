{{/*
What each service is: the key of its values, its ports, what it takes, and how long it may take to stop. grace is the sum of what the binary allows
itself (hand-over 30 s, last parts 30 s, for runners the default --operation-drain-timeout of 60 s, open calls 10 s, last spans 5 s) and of the pause
before it is told to stop, in which Services take it out. That of runners is short: another replica takes their jobs when they are told, and their callers,
async-operation-monitor and runners, repeat their calls.
*/}}
{{- define "holdfast.services" -}}
queue-scheduler: {key: queueScheduler, grpc: 7441, http: 8441, memory: 64Mi, limit: 256Mi, pause: 5, grace: 85}
backup-runner: {key: backupRunner, grpc: 7442, http: 8442, memory: 128Mi, limit: 512Mi, pause: 1, grace: 141, drains: true}
restore-runner: {key: restoreRunner, grpc: 7443, http: 8443, memory: 128Mi, limit: 1408Mi, pause: 1, grace: 141, drains: true}
async-operation-monitor: {key: asyncOperationMonitor, grpc: 7444, http: 8444, memory: 64Mi, limit: 256Mi, pause: 5, grace: 85}
manifest-indexer: {key: manifestIndexer, grpc: 7445, http: 8447, artifacts: 8445, memory: 64Mi, limit: 256Mi, pause: 5, grace: 85}
deletion: {key: deletion, grpc: 7446, http: 8446, memory: 64Mi, limit: 256Mi, pause: 5, grace: 85}
volume-mover: {key: volumeMover, grpc: 7447, http: 8448, memory: 64Mi, limit: 256Mi, pause: 5, grace: 85}
{{- end -}}

{{/* Of a dict of root, name, facts and values: the flags of a service, as YAML from flag to value. What comes later wins. */}}
{{- define "holdfast.flags" -}}
{{- $root := .root -}}
{{- $own := dict "namespace" $root.Release.Namespace "work-dir" "/scratch" "plugin-dir" "/plugins" "http-address" (printf ":%v" .facts.http) "auth" $root.Values.auth -}}
{{- $own = merge $own (fromYaml (include "holdfast.tls.flags" .)) -}}
{{- if include "holdfast.tls" $root -}}
{{- $_ := set $own "grpc-address" (printf ":%v" .facts.grpc) -}}
{{- $_ := set $own "grpc-advertise-address" (printf "[$(POD_IP)]:%v" .facts.grpc) -}}
{{- else -}}
{{- $_ := set $own "grpc-address" (printf "127.0.0.1:%v" .facts.grpc) -}}
{{- end -}}
{{- with .facts.artifacts -}}
{{- $_ := set $own "artifact-address" (ternary (printf ":%v" .) (printf "127.0.0.1:%v" .) (ne $root.Values.tls.mode "none")) -}}
{{- $inside := ternary (printf "https://%s:%v" (include "holdfast.tls.serverName" (dict "root" $root "name" "manifest-indexer")) .) "" (ne $root.Values.tls.mode "none") -}}
{{- with $root.Values.manifestIndexer.artifactURL | default $inside -}}{{- $_ := set $own "artifact-url" . -}}{{- end -}}
{{- end -}}
{{- with include "holdfast.streamReplicas" $root -}}
{{- $_ := set $own "nats-stream-replicas" . -}}
{{- end -}}
{{- if eq .name "volume-mover" -}}
{{- $_ := set $own "mover-image" (include "holdfast.moverImage" $root) -}}
{{- $_ := set $own "mover-pull-policy" $root.Values.image.pullPolicy -}}
{{- $_ := set $own "mover-service-account" (include "holdfast.moverAccount" $root) -}}
{{- $_ := set $own "kubelet-root" (fromYaml (include "holdfast.movers" $root)).kubeletRoot -}}
{{- $_ := set $own "mover-env" (include "holdfast.moverEnv" .) -}}
{{- if $root.Values.caCertificates.configMap -}}{{- $_ := set $own "mover-ca" (printf "configmap/%s" $root.Values.caCertificates.configMap) -}}
{{- else if $root.Values.caCertificates.secret -}}{{- $_ := set $own "mover-ca" (printf "secret/%s" $root.Values.caCertificates.secret) -}}{{- end -}}
{{- else if eq .name "restore-runner" -}}
{{- $_ := set $own "restore-wait-image" (include "holdfast.moverImage" $root) -}}
{{- end -}}
{{- range $flag, $_ := .values.args -}}
{{- if or (hasKey $own $flag) (has $flag (list "kubeconfig" "nats-url" "nats-stream-replicas" "nats-creds-file" "nats-ca-file" "nats-cert-file" "nats-key-file" "tls-cert-file" "tls-key-file" "tls-ca-file" "tls-client-ca-file" "tls-server-names" "auth-audience" "auth-token-file" "grpc-advertise-address" "artifact-url")) -}}
{{- fail (printf "%s.args.%s: the chart sets this flag, see values.yaml for what decides it" $.facts.key $flag) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default (dict) .values.args) "features" -}}
{{- fail (printf "%s.args.features: set features, which decides the flag and the rights of every service" .facts.key) -}}
{{- end -}}
{{- if and (hasKey (default (dict) .values.args) "operation-drain-timeout") (not .values.terminationGracePeriodSeconds) -}}
{{- fail (printf "%s.args.operation-drain-timeout: set %s.terminationGracePeriodSeconds too, to 81 s and this timeout, else the kubelet kills the process that waits" .facts.key .facts.key) -}}
{{- end -}}
{{- $flags := mergeOverwrite (dict "log-level" $root.Values.logLevel "log-format" $root.Values.logFormat) (fromYaml (include "holdfast.velero.flags" .)) (default (dict) .values.args) $own -}}
{{- with $root.Values.features -}}{{- $_ := set $flags "features" (ternary (join "," .) . (kindIs "slice" .)) -}}{{- end -}}
{{- toYaml $flags -}}
{{- end -}}
