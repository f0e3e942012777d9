{{/*
The values of Velero's chart. docs/install.md has the table. What is used as it is appears in the templates; here are the flags that configuration.*
becomes, what is refused and what is ignored.
*/}}

{{/* From a key of configuration to the flag, and the services that have it; "*" is all. */}}
{{- define "holdfast.velero.map" -}}
backupSyncPeriod: {backup-sync-period: [manifest-indexer]}
storeValidationFrequency: {store-validation-frequency: [manifest-indexer]}
defaultBackupStorageLocation: {default-backup-storage-location: [manifest-indexer, queue-scheduler]}
defaultBackupTTL: {default-backup-ttl: [queue-scheduler]}
defaultItemOperationTimeout: {default-item-operation-timeout: [queue-scheduler]}
defaultSnapshotMoveData: {default-snapshot-move-data: [queue-scheduler]}
defaultVolumeSnapshotLocations: {default-volume-snapshot-locations: [queue-scheduler]}
defaultVolumesToFsBackup: {default-volumes-to-fs-backup: [queue-scheduler]}
concurrentBackups: {concurrent-backups: [queue-scheduler]}
scheduleSkipImmediately: {schedule-skip-immediately: [queue-scheduler]}
resourceTimeout: {resource-timeout: [queue-scheduler, restore-runner]}
terminatingResourceTimeout: {terminating-resource-timeout: [restore-runner]}
fsBackupTimeout: {fs-backup-timeout: [backup-runner]}
itemBlockWorkerCount: {item-block-worker-count: [backup-runner]}
itemOperationSyncFrequency: {item-operation-sync-frequency: [async-operation-monitor]}
garbageCollectionFrequency: {garbage-collection-frequency: [deletion]}
dataMoverPrepareTimeout: {mover-prepare-timeout: [volume-mover]}
defaultRepoMaintainFrequency: {maintenance-interval: [volume-mover]}
features: {features: ["*"]}
logLevel: {log-level: ["*"]}
logFormat: {log-format: ["*"]}
{{- end -}}

{{- define "holdfast.velero.flags" -}}
{{- $name := .name -}}{{- $given := .root.Values.configuration -}}{{- $flags := dict -}}
{{- range $key, $to := fromYaml (include "holdfast.velero.map" .) -}}
{{- $value := get $given $key -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) -}}
{{- range $flag, $services := $to -}}
{{- if or (has "*" $services) (has $name $services) -}}
{{- if eq $key "logLevel" -}}{{- $value = get (dict "warning" "warn" "trace" "debug" "fatal" "error" "panic" "error") $value | default $value -}}{{- end -}}
{{- $_ := set $flags $flag (toString $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $flags -}}
{{- end -}}

{{/* From a path to the reason why it is refused when it is set to something that is not empty, false or zero. */}}
{{- define "holdfast.velero.refused" -}}
deployRestic: "volumes are stored with kopia"
configuration.defaultVolumesToRestic: "volumes are stored with kopia"
configuration.restoreOnlyMode: "set accessMode: ReadOnly on the locations"
configuration.restoreResourcePriorities: "the order comes from dependencies; the annotation holdfast.io/order of a Restore adds to it"
configuration.disableControllers: "set replicas of a service to 0"
configuration.extraArgs: "flags differ by service: use <service>.args"
configuration.pluginDir: "plugins lie in /plugins; init containers put them into the volume plugins"
configuration.namespace: "the namespace is that of the release"
configuration.provider: "name the provider in each backupStorageLocation and volumeSnapshotLocation (Velero's chart has not had this key since 3.0)"
cleanUpCRDs: "removing the definitions removes every backup object of the cluster; do it by hand"
useCRDs: "use helm install --skip-crds"
lifecycle: "the chart sets preStop so that it fits the hand-over"
{{- end -}}

{{/* From a path to the reason why it has no effect. */}}
{{- define "holdfast.velero.ignored" -}}
configuration.clientQPS: "the API server's priority and fairness bounds requests"
configuration.clientBurst: "the API server's priority and fairness bounds requests"
configuration.clientPageSize: "pages are read as they arrive"
configuration.disableInformerCache: "decisions read past the cache"
configuration.metricsAddress: "metrics are on the port http of each service"
configuration.profilerAddress: "there is no profiler"
configuration.maxConcurrentK8SConnections: "--workers of backup-runner bounds lists"
configuration.uploaderType: "volumes are stored with kopia"
configuration.repositoryMaintenanceJob: "repositories are maintained by mover Pods, which have the flags --mover-* of volume-mover"
deployNodeAgent: "volume-mover starts a Pod for each volume, and nothing else runs on the nodes"
nodeAgent: "there is no DaemonSet; the Pods that move volumes have the values movers and volumeMover"
restic: "there is no DaemonSet; the Pods that move volumes have the values movers and volumeMover"
kubectl: "the Job of the chart runs the image of the command line, not kubectl"
metrics.nodeAgentPodMonitor: "there is no DaemonSet"
metrics.podAnnotations: "set podAnnotations; the port of /metrics differs by service"
metrics.service: "each service has a Service with the port http"
metrics.serviceMonitor.tlsConfig: "metrics are served without TLS"
metrics.serviceMonitor.scheme: "metrics are served without TLS"
metrics.serviceMonitor.metricRelabelings: "add them to a ServiceMonitor of your own"
metrics.serviceMonitor.relabelings: "add them to a ServiceMonitor of your own"
rbac.clusterAdministrator: "each service has a role of what it needs; <service>.extraRules adds to it for plugins"
rbac.clusterAdministratorName: "each service has a role of its own"
image.repository: "Velero's image is not run, so image.tag beside it does not count either; image.registry is where the images of the services are"
serviceAccount.server.create: "each service has an account: <service>.serviceAccount"
serviceAccount.server.name: "each service has an account: <service>.serviceAccount"
{{- end -}}

{{- define "holdfast.velero.value" -}}
{{- $at := .values -}}{{- $found := true -}}
{{- range splitList "." .path -}}
{{- if and $found (kindIs "map" $at) (hasKey $at .) -}}{{- $at = get $at . -}}{{- else -}}{{- $found = false -}}{{- end -}}
{{- end -}}
{{- if and $found $at -}}set{{- end -}}
{{- end -}}

{{- define "holdfast.velero.check" -}}
{{- range $path, $why := fromYaml (include "holdfast.velero.refused" .) -}}
{{- if include "holdfast.velero.value" (dict "values" $.Values "path" $path) -}}
{{- fail (printf "%s: %s" $path $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "holdfast.velero.warnings" -}}
{{- range $path, $why := fromYaml (include "holdfast.velero.ignored" .) -}}
{{- if include "holdfast.velero.value" (dict "values" $.Values "path" $path) }}
WARNING: {{ $path }} has no effect: {{ $why }}
{{- end -}}
{{- end -}}
{{- end -}}
