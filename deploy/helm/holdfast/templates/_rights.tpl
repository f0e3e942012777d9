{{/*
What each service may do, derived from the calls in its code: docs/rights.md says which call needs which rule, and e2e/suites/chart runs the services with
exactly these. namespaced rules hold in the release's namespace, cluster rules everywhere.
*/}}

{{/* What all services need in the namespace: they open locations, with the Secrets that these name, and hold Leases. */}}
{{- define "holdfast.rights.common" -}}
- {apiGroups: [velero.io], resources: [backupstoragelocations], verbs: [get]}
- {apiGroups: [""], resources: [secrets], verbs: [get]}
{{- end -}}

{{- define "holdfast.rights.duty" -}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
{{- end -}}

{{- define "holdfast.rights.instance" -}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, create, patch, delete]}
{{- end -}}

{{- define "holdfast.rights.events" -}}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end -}}

{{- define "holdfast.rights.operations" -}}
{{- if eq .Values.auth "kubernetes" }}
- {nonResourceURLs: ["/holdfast.operation.v1.OperationService/*"], verbs: [post]}
{{- end }}
{{- end -}}

{{- define "holdfast.rights.namespaced.queue-scheduler" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [backups, restores], verbs: [get, list, watch, create, patch]}
- {apiGroups: [velero.io], resources: [schedules], verbs: [list, watch, patch]}
- {apiGroups: [velero.io], resources: [backupstoragelocations, volumesnapshotlocations], verbs: [list]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [holdfast-queue], verbs: [update]}
- {apiGroups: [apps], resources: [deployments], verbs: [list]}
{{- end -}}

{{- define "holdfast.rights.cluster.queue-scheduler" -}}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list]}
{{- end -}}

{{- define "holdfast.rights.namespaced.backup-runner" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.instance" . }}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [backups], verbs: [get, list, watch, patch]}
- {apiGroups: [velero.io], resources: [schedules], verbs: [list, watch]}
- {apiGroups: [velero.io], resources: [volumesnapshotlocations], verbs: [get]}
- {apiGroups: [velero.io], resources: [podvolumebackups], verbs: [create, patch]}
- {apiGroups: [velero.io], resources: [datauploads], verbs: [get, create, patch]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [holdfast-queue], verbs: [get, update]}
{{- end -}}

{{- define "holdfast.rights.cluster.backup-runner" -}}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
- {apiGroups: ["*"], resources: ["*"], verbs: [list]}
{{- if .Values.hooks.enabled }}
- {apiGroups: [""], resources: [pods/exec], verbs: [create, get]}
{{- end }}
{{- if include "holdfast.csi" . }}
- {apiGroups: [""], resources: [persistentvolumes, persistentvolumeclaims], verbs: [get]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [get, create, patch, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [get, patch, delete]}
{{- end }}
{{ include "holdfast.rights.operations" . }}
{{- end -}}

{{- define "holdfast.rights.namespaced.restore-runner" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.instance" . }}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [restores], verbs: [get, list, watch, patch]}
- {apiGroups: [velero.io], resources: [schedules], verbs: [list, watch]}
- {apiGroups: [velero.io], resources: [backups, volumesnapshotlocations], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list]}
- {apiGroups: [apps], resources: [deployments], verbs: [list]}
{{- end -}}

{{/* This is as much as cluster-admin: who may create workloads, roles and bindings of any kind may become anyone. */}}
{{- define "holdfast.rights.cluster.restore-runner" -}}
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, create, patch, delete]}
- {apiGroups: ["*"], resources: ["*/finalizers"], verbs: [update]}
- {apiGroups: [apiregistration.k8s.io], resources: [apiservices], verbs: [list]}
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, clusterroles], verbs: [escalate, bind]}
{{- if include "holdfast.csi" . }}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [list]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots, volumesnapshotcontents, volumesnapshotclasses], verbs: [list]}
{{- end }}
{{ include "holdfast.rights.operations" . }}
{{- end -}}

{{- define "holdfast.rights.namespaced.async-operation-monitor" -}}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [backups, restores], verbs: [get, list, watch, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}
- {apiGroups: [velero.io], resources: [podvolumebackups, podvolumerestores, datauploads, datadownloads], verbs: [list, patch]}
{{- end -}}

{{- define "holdfast.rights.cluster.async-operation-monitor" -}}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
{{- if include "holdfast.csi" . }}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [get, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [get, patch, delete]}
{{- end }}
{{ include "holdfast.rights.operations" . }}
{{- end -}}

{{- define "holdfast.rights.namespaced.manifest-indexer" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [backupstoragelocations], verbs: [list, watch, patch]}
- {apiGroups: [velero.io], resources: [downloadrequests, serverstatusrequests], verbs: [get, list, watch, patch, delete]}
- {apiGroups: [velero.io], resources: [backups], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [velero.io], resources: [podvolumebackups], verbs: [create]}
- {apiGroups: [velero.io], resources: [restores, schedules], verbs: [get]}
- {apiGroups: [""], resources: [secrets], verbs: [create]}
{{- end -}}

{{/* None: only reviews, and rules of the installation. */}}
{{- define "holdfast.rights.cluster.manifest-indexer" -}}
{{- end -}}

{{- define "holdfast.rights.namespaced.deletion" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.instance" . }}
- {apiGroups: [velero.io], resources: [deletebackuprequests], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [velero.io], resources: [backups], verbs: [get, list, patch, delete]}
- {apiGroups: [velero.io], resources: [restores], verbs: [list, delete]}
- {apiGroups: [velero.io], resources: [backupstoragelocations, podvolumebackups, datauploads], verbs: [list]}
- {apiGroups: [velero.io], resources: [schedules], verbs: [list, watch]}
- {apiGroups: [velero.io], resources: [volumesnapshotlocations], verbs: [get]}
{{- end -}}

{{- define "holdfast.rights.cluster.deletion" -}}
- {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}
- {apiGroups: [velero.io], resources: [backups, restores], verbs: [list]}
- {apiGroups: [apiregistration.k8s.io], resources: [apiservices], verbs: [list]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [get, list, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [get, list, create, patch, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents/status], verbs: [patch]}
{{- if eq .Values.auth "kubernetes" }}
- {nonResourceURLs: ["/holdfast.volume.v1.VolumeService/ForgetSnapshots"], verbs: [post]}
{{- end }}
{{- end -}}

{{- define "holdfast.rights.namespaced.volume-mover" -}}
{{ include "holdfast.rights.duty" . }}
{{ include "holdfast.rights.events" . }}
- {apiGroups: [velero.io], resources: [podvolumebackups, podvolumerestores, datauploads, datadownloads], verbs: [get, list, watch, patch]}
- {apiGroups: [velero.io], resources: [backuprepositories], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch, create, delete]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [pods/exec], verbs: [create, get]}
- {apiGroups: [""], resources: [secrets], verbs: [create, delete]}
- {apiGroups: [velero.io], resources: [backups], verbs: [get]}
- {apiGroups: [velero.io], resources: [restores], verbs: [get]}
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [create, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [create]}
{{- end -}}

{{- define "holdfast.rights.cluster.volume-mover" -}}
- {apiGroups: [""], resources: [pods, persistentvolumes, persistentvolumeclaims, namespaces], verbs: [get]}
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [persistentvolumes, persistentvolumeclaims], verbs: [patch]}
- {apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [get]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshots], verbs: [get, delete]}
- {apiGroups: [snapshot.storage.k8s.io], resources: [volumesnapshotcontents], verbs: [get, list, create, patch, delete]}
{{- end -}}

{{/* What a service that asks the API server who calls it needs. */}}
{{- define "holdfast.rights.reviews" -}}
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
{{- end -}}

{{/* Of the Job that adds to the definitions. create cannot be narrowed to names. */}}
{{- define "holdfast.rights.definitions" -}}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [create]}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames:
    {{- range list "backuprepositories" "backups" "backupstoragelocations" "datadownloads" "datauploads" "deletebackuprequests" "downloadrequests" "podvolumebackups" "podvolumerestores" "restores" "schedules" "serverstatusrequests" "volumesnapshotlocations" }}
    - {{ . }}.velero.io
    {{- end }}
  verbs: [get, update]
{{- end -}}

{{/* Of the Job that checks before an installation: it reads definitions, and looks for Velero servers and their locations in all namespaces. */}}
{{- define "holdfast.rights.doctor" -}}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get]}
- {apiGroups: [apps], resources: [deployments], verbs: [list]}
- {apiGroups: [velero.io], resources: [backupstoragelocations], verbs: [list]}
{{- end -}}

{{/* Of the Job that runs after an uninstallation. Neither list nor the names of Leases can be narrowed. */}}
{{- define "holdfast.rights.cleanup" -}}
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, delete]}
- {apiGroups: [""], resources: [secrets], resourceNames: [holdfast-artifact-key], verbs: [delete]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [holdfast-queue], verbs: [delete]}
{{- end -}}

{{- define "holdfast.csi" -}}
{{- $features := ternary .Values.features (list .Values.features) (kindIs "slice" .Values.features) -}}
{{- if or (has "EnableCSI" $features) (contains "EnableCSI" (toString .Values.configuration.features)) -}}on{{- end -}}
{{- end -}}
