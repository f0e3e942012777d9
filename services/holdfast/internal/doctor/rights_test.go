package doctor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

const deletionAccount = "system:serviceaccount:velero:account-deletion"

func TestRightsOfAccounts(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(deployments("--auth=kubernetes"))
	found := b.run("rights")
	fine(t, found)
	require.Len(t, found, 7, "six services and the caller")

	b.denied = func(user, request string) bool {
		return user == deletionAccount && strings.HasPrefix(request, "delete backups.velero.io")
	}
	found = b.run("rights")
	one(t, doctor.Failed, found, "deletion", "delete backups.velero.io in velero")
	for _, f := range found {
		if f.Status == doctor.Failed {
			require.Contains(t, f.Remedy, deletionAccount)
		}
	}
}

// What settings make unnecessary is not asked for.
func TestRightsFollowTheSettings(t *testing.T) {
	for _, c := range []struct{ arg, right, service string }{
		{"--features=EnableCSI", "create volumesnapshots.snapshot.storage.k8s.io", "backup-runner"},
		{"--auth=kubernetes", "create tokenreviews.authentication.k8s.io", "queue-scheduler"},
	} {
		b := newBed(t)
		b.denied = func(_, request string) bool { return request == c.right }
		b.objects = asObjects(deployments())
		fine(t, b.run("rights"))
		b.objects = asObjects(deployments(c.arg))
		require.True(t, contains(of(doctor.Failed, b.run("rights")), c.service+": may not "+c.right), c.right)
	}
}

func TestRightsOfHooksAreAWarning(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(deployments())
	b.denied = func(_, request string) bool { return request == "create pods/exec" }
	one(t, doctor.Warning, b.run("rights"), "backup-runner", "create pods/exec")
}

// Without the chart the caller's rights are those of the services.
func TestRightsOfTheCaller(t *testing.T) {
	b := newBed(t)
	found := b.run("rights")
	fine(t, found)
	require.Len(t, found, 7)
	b.denied = func(user, request string) bool {
		require.Empty(t, user)
		return request == "patch */*" || request == "patch *.*"
	}
	one(t, doctor.Failed, b.run("rights"), "restore-runner as you", "patch *.*")

	b = newBed(t)
	b.objects = asObjects(deployments())
	b.denied = func(user, request string) bool { return user == "" && request == "create backups.velero.io in velero" }
	one(t, doctor.Warning, b.run("rights"), "you", "create backups.velero.io in velero")
}

func TestWhoMayNotReviewOthers(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(deployments())
	b.err = func(verb string, obj any) error {
		if _, ok := obj.(*authorizationv1.SubjectAccessReview); ok && verb == "create" {
			return errForbidden
		}
		return nil
	}
	found := b.run("rights")
	require.Empty(t, of(doctor.Failed, found))
	require.Len(t, of(doctor.Skipped, found), 6)
}

func TestManyMissingRightsAreCut(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(deployments())
	b.denied = func(user, _ string) bool { return user == deletionAccount }
	texts := of(doctor.Failed, b.run("rights"))
	require.Len(t, texts, 1)
	require.Regexp(t, `and \d+ more$`, texts[0])
}

// Whose Deployments cannot be seen is not taken for a server of the caller's.
func TestRightsOfAccountsThatAreNotKnown(t *testing.T) {
	b := newBed(t)
	b.err = func(verb string, _ any) error {
		if verb == "list" {
			return errForbidden
		}
		return nil
	}
	b.denied = func(string, string) bool { return true }
	found := b.run("rights")
	require.Empty(t, of(doctor.Failed, found))
	one(t, doctor.Skipped, found, "services", "not known")
	one(t, doctor.Warning, found, "you")
}
