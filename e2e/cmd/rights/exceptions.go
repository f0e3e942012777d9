package main

import "github.com/holdfast-io/holdfast/e2e/harness/chart"

// namespace is the server namespace of the sites.
const namespace = "velero"

const (
	whileCreating = "the API server's admission of roles and bindings asks for it, not a request of the service's own: " +
		"without it no role or binding to one is restored that has more rights than the service. TestServicesNeedNoMoreThanTheirRoles restores such a Role and a RoleBinding to it"
	whileOwning = "the admission plugin OwnerReferencesPermissionEnforcement asks for it, not a request of the service's own: " +
		"TestNothingIsLostBesideAnOperator restores owners that are to be blocked under that plugin"
	whileExecuting = "the API server asks for it while it serves a WebSocket to `pods/exec`, a request with the verb get " +
		"(AuthorizePodWebsocketUpgradeCreatePermission): without it no hook runs, and no file of a volume is read. TestHooks and TestPodVolumes do"
	onRepetition = "client-go counts the repetition of an Event in place of creating another. A runner reports `Waiting` again only of a job that it found twice " +
		"while it was full, manifest-indexer the phase of a location only when validations follow each other closely, " +
		"async-operation-monitor that an operation stalls when two do"
	amongReplicas = "a runner calls it for an operation of a failed job that lives in a plugin of another replica, and sites have one: " +
		"TestAnInstanceAnswersForItsProcesses calls it between instances"
	whereListsDoNotStream = "client-go's informers list where the API server does not stream lists, as that of the suites does"
	withoutReviews        = "the sites that deletion calls volume-mover in do not have it ask who calls: TestPodVolumes has one"
	whoeverIsFirst        = "whichever instance of the three services looks first deletes the Lease of one that died: some suite sees each of them, but not in each run"
)

// exceptions are the grants whose use the audit log of the suites need not show, each with the reason.
var exceptions = map[string]chart.Exception{
	"restore-runner: escalate roles.rbac.authorization.k8s.io in the cluster":         {Why: whileCreating},
	"restore-runner: escalate clusterroles.rbac.authorization.k8s.io in the cluster":  {Why: whileCreating},
	"restore-runner: bind roles.rbac.authorization.k8s.io in the cluster":             {Why: whileCreating},
	"restore-runner: bind clusterroles.rbac.authorization.k8s.io in the cluster":      {Why: whileCreating},
	"restore-runner: update */finalizers.* in the cluster":                            {Why: whileOwning},
	"backup-runner: create pods/exec in the cluster":                                  {Why: whileExecuting},
	"volume-mover: create pods/exec in the namespace":                                 {Why: whileExecuting},
	"backup-runner: post /holdfast.operation.v1.OperationService/* in the cluster":    {Why: amongReplicas},
	"restore-runner: post /holdfast.operation.v1.OperationService/* in the cluster":   {Why: amongReplicas},
	"deletion: post /holdfast.volume.v1.VolumeService/ForgetSnapshots in the cluster": {Why: withoutReviews},
	"backup-runner: patch events.events.k8s.io in the namespace":                      {Why: onRepetition, Sometimes: true},
	"async-operation-monitor: patch events.events.k8s.io in the namespace":            {Why: onRepetition, Sometimes: true},
	"manifest-indexer: patch events.events.k8s.io in the namespace":                   {Why: onRepetition, Sometimes: true},
	"restore-runner: patch events.events.k8s.io in the namespace":                     {Why: onRepetition, Sometimes: true},
	"backup-runner: delete leases.coordination.k8s.io in the namespace":               {Why: whoeverIsFirst, Sometimes: true},
	"restore-runner: delete leases.coordination.k8s.io in the namespace":              {Why: whoeverIsFirst, Sometimes: true},
	"deletion: delete leases.coordination.k8s.io in the namespace":                    {Why: whoeverIsFirst, Sometimes: true},
	"volume-mover: list pods in the namespace":                                        {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: list podvolumebackups.velero.io in the namespace":                  {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: list podvolumerestores.velero.io in the namespace":                 {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: list datauploads.velero.io in the namespace":                       {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: list datadownloads.velero.io in the namespace":                     {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: list backuprepositories.velero.io in the namespace":                {Why: whereListsDoNotStream, Sometimes: true},
	"volume-mover: patch events.events.k8s.io in the namespace":                       {Why: onRepetition, Sometimes: true},
}
