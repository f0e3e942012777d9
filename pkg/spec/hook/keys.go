package hook

import (
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const restoreDomain = "hook.restore.velero.io/"

var (
	// hookKeys are the keys of the annotations of hooks, by their prefixes.
	hookKeys = map[string][]string{
		velerov1.AnnotationBackupHookPrefix:      backupKeys,
		velerov1.AnnotationPreBackupHookPrefix:   backupKeys,
		velerov1.AnnotationPostBackupHookPrefix:  backupKeys,
		velerov1.AnnotationPostRestoreHookPrefix: {"command", "container", "on-error", "exec-timeout", "wait-timeout", "wait-for-ready"},
		velerov1.AnnotationInitRestoreHookPrefix: {"command", "container-image", "container-name", "timeout"},
	}
	backupKeys = []string{"command", "container", "on-error", "timeout"}
	// otherKeys are what other hooks call a key.
	otherKeys = map[string][]string{
		"timeout": {"exec-timeout"}, "exec-timeout": {"timeout"},
		"container": {"container-name"}, "container-name": {"container"}, "image": {"container-image"}, "name": {"container-name", "container"},
	}
)

// UnknownKey returns what is wrong with an annotation that is in the domain of hooks and that no hook
// has; "" for any other annotation.
func UnknownKey(annotation string) string {
	at := strings.IndexByte(annotation, '/') + 1
	prefix, key := annotation[:at], annotation[at:]
	if !strings.HasSuffix(prefix, velerov1.AnnotationBackupHookPrefix) && !strings.HasSuffix(prefix, restoreDomain) {
		return ""
	}
	keys, known := hookKeys[prefix]
	switch {
	case slices.Contains(keys, key):
		return ""
	case known:
		return "annotation " + annotation + " is ignored, hooks do not have it: use " + closestKeys(prefix, key, keys)
	}
	return "annotation " + annotation + " is ignored: the prefixes of hooks are " + velerov1.AnnotationPreBackupHookPrefix + ", " +
		velerov1.AnnotationPostBackupHookPrefix + ", " + velerov1.AnnotationPostRestoreHookPrefix + " and " + velerov1.AnnotationInitRestoreHookPrefix
}

// UnknownRestoreKey is UnknownKey of the annotations of hooks of a restore; "" for all others.
func UnknownRestoreKey(annotation string) string {
	if !strings.Contains(annotation, restoreDomain) {
		return ""
	}
	return UnknownKey(annotation)
}

// closestKeys names the annotation that was meant by a key, or all keys of the prefix.
func closestKeys(prefix, key string, keys []string) string {
	plain := strings.NewReplacer("-", "", "_", "", ".", "")
	meant := func(known string) bool {
		return strings.EqualFold(plain.Replace(key), plain.Replace(known)) || slices.Contains(otherKeys[key], known)
	}
	if i := slices.IndexFunc(keys, meant); i >= 0 {
		return prefix + keys[i]
	}
	return prefix + " with " + strings.Join(keys[:len(keys)-1], ", ") + " or " + keys[len(keys)-1]
}
