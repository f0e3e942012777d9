package pluginhost

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Kind is what a plugin is for, as Velero's PluginLister and its ServerStatusRequests spell it.
type Kind string

// The kinds of Velero's protocol.
const (
	KindObjectStore         Kind = "ObjectStore"
	KindVolumeSnapshotter   Kind = "VolumeSnapshotter"
	KindBackupItemAction    Kind = "BackupItemAction"
	KindBackupItemActionV2  Kind = "BackupItemActionV2"
	KindRestoreItemAction   Kind = "RestoreItemAction"
	KindRestoreItemActionV2 Kind = "RestoreItemActionV2"
	KindDeleteItemAction    Kind = "DeleteItemAction"
	KindItemBlockAction     Kind = "ItemBlockAction"
)

// The kinds that only plugins of Holdfast's SDK have.
const (
	KindAsyncBackupItemAction  Kind = "AsyncBackupItemAction"
	KindAsyncRestoreItemAction Kind = "AsyncRestoreItemAction"
)

// kinds are all there are, older versions before newer ones.
var kinds = []Kind{
	KindObjectStore, KindVolumeSnapshotter, KindBackupItemAction, KindBackupItemActionV2,
	KindRestoreItemAction, KindRestoreItemActionV2, KindDeleteItemAction, KindItemBlockAction,
	KindAsyncBackupItemAction, KindAsyncRestoreItemAction,
}

// preferredKinds is the kind that a plugin registered under both is used by.
var preferredKinds = map[Kind]Kind{
	KindBackupItemAction:  KindBackupItemActionV2,
	KindRestoreItemAction: KindRestoreItemActionV2,
}

// isAsynchronous reports whether plugins of the kind are the SDK's asynchronous actions.
func isAsynchronous(k Kind) bool {
	return k == KindAsyncBackupItemAction || k == KindAsyncRestoreItemAction
}

// twinKinds are the kinds under which one plugin may be registered twice, so that servers that do not
// have the SDK's kinds find it too. A name is one plugin's in both.
var twinKinds = map[Kind]Kind{
	KindAsyncBackupItemAction:  KindBackupItemActionV2,
	KindAsyncRestoreItemAction: KindRestoreItemActionV2,
	KindBackupItemActionV2:     KindAsyncBackupItemAction,
	KindRestoreItemActionV2:    KindAsyncRestoreItemAction,
}

// CheckName checks a plugin's name: a DNS subdomain, one "/" and something after it.
func CheckName(name string) error {
	vendor, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return fmt.Errorf("name %q: must be a DNS subdomain, \"/\" and a name", name)
	case rest == "" || strings.Contains(rest, "/"):
		return fmt.Errorf("name %q: must have one \"/\" with a name after it", name)
	}
	if problems := validation.IsDNS1123Subdomain(vendor); len(problems) > 0 {
		return fmt.Errorf("name %q: before the \"/\": %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// FullName returns the registered name that a location's provider means: without "/" it is one of
// Velero's own.
func FullName(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "velero.io/" + name
}

func isKnownKind(k Kind) bool { return slices.Contains(kinds, k) }
