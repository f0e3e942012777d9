package hook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/spec/hook"
)

func TestKeysThatHooksHave(t *testing.T) {
	for _, key := range []string{
		"hook.backup.velero.io/command", "pre.hook.backup.velero.io/timeout", "post.hook.backup.velero.io/on-error", "post.hook.restore.velero.io/exec-timeout",
		"post.hook.restore.velero.io/wait-for-ready", "init.hook.restore.velero.io/container-image", "init.hook.restore.velero.io/timeout",
		"backup.velero.io/backup-volumes", "velero.io/restore-status", "hook.backup.velero.io", "", "/", "example.com/post.hook.restore.velero.io/x",
	} {
		require.Empty(t, hook.UnknownKey(key), key)
	}
}

// The message has the annotation that was meant, or all that there are.
func TestKeysThatNoHookHas(t *testing.T) {
	const prefixes = "the prefixes of hooks are pre.hook.backup.velero.io/, post.hook.backup.velero.io/, post.hook.restore.velero.io/ and init.hook.restore.velero.io/"
	for key, want := range map[string]string{
		"pre.hook.backup.velero.io/exec-timeout":     "use pre.hook.backup.velero.io/timeout",
		"hook.backup.velero.io/onError":              "use hook.backup.velero.io/on-error",
		"post.hook.backup.velero.io/on_error":        "use post.hook.backup.velero.io/on-error",
		"post.hook.restore.velero.io/timeout":        "use post.hook.restore.velero.io/exec-timeout",
		"post.hook.restore.velero.io/waittimeout":    "use post.hook.restore.velero.io/wait-timeout",
		"post.hook.restore.velero.io/container-name": "use post.hook.restore.velero.io/container",
		"init.hook.restore.velero.io/container":      "use init.hook.restore.velero.io/container-name",
		"init.hook.restore.velero.io/image":          "use init.hook.restore.velero.io/container-image",
		"post.hook.backup.velero.io/wait-timeout":    "use post.hook.backup.velero.io/ with command, container, on-error or timeout",
		"init.hook.restore.velero.io/initContainers": "use init.hook.restore.velero.io/ with command, container-image, container-name or timeout",
		"pre.hook.restore.velero.io/command":         prefixes,
		"hook.restore.velero.io/command":             prefixes,
		"init.hook.backup.velero.io/container-image": prefixes,
	} {
		require.Regexp(t, "^annotation "+key+" is ignored", hook.UnknownKey(key))
		require.Contains(t, hook.UnknownKey(key), want)
	}
	require.Empty(t, hook.UnknownRestoreKey("pre.hook.backup.velero.io/exec-timeout"))
	require.NotEmpty(t, hook.UnknownRestoreKey("pre.hook.restore.velero.io/command"))
}
