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
	b.objects = asObjects(chartDeployments("--auth=kubernetes"))
	found := b.runCheck("rights")
	requireFine(t, found)
	require.Len(t, found, 8, "seven services and the caller")

	b.denied = func(user, request string) bool {
		return user == deletionAccount && strings.HasPrefix(request, "delete backups.velero.io")
	}
	found = b.runCheck("rights")
	requireFinding(t, doctor.Failed, found, "deletion", "delete backups.velero.io in velero")
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
		b.objects = asObjects(chartDeployments())
		requireFine(t, b.runCheck("rights"))
		b.objects = asObjects(chartDeployments(c.arg))
		require.True(t, containsWord(findingsWith(doctor.Failed, b.runCheck("rights")), c.service+": may not "+c.right), c.right)
	}
}

func TestRightsOfHooksAreAWarning(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(chartDeployments())
	b.denied = func(_, request string) bool { return request == "create pods/exec" }
	requireFinding(t, doctor.Warning, b.runCheck("rights"), "backup-runner", "create pods/exec")
}

// Without the chart the caller's rights are those of the services.
func TestRightsOfTheCaller(t *testing.T) {
	b := newBed(t)
	found := b.runCheck("rights")
	requireFine(t, found)
	require.Len(t, found, 8)
	b.denied = func(user, request string) bool {
		require.Empty(t, user)
		return request == "patch */*" || request == "patch *.*"
	}
	requireFinding(t, doctor.Failed, b.runCheck("rights"), "restore-runner as you", "patch *.*")

	b = newBed(t)
	b.objects = asObjects(chartDeployments())
	b.denied = func(user, request string) bool { return user == "" && request == "create backups.velero.io in velero" }
	requireFinding(t, doctor.Warning, b.runCheck("rights"), "you", "create backups.velero.io in velero")
}

func TestWhoMayNotReviewOthers(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(chartDeployments())
	b.err = func(verb string, obj any) error {
		if _, ok := obj.(*authorizationv1.SubjectAccessReview); ok && verb == "create" {
			return errForbidden
		}
		return nil
	}
	found := b.runCheck("rights")
	require.Empty(t, findingsWith(doctor.Failed, found))
	require.Len(t, findingsWith(doctor.Skipped, found), 7)
}

func TestManyMissingRightsAreCut(t *testing.T) {
	b := newBed(t)
	b.objects = asObjects(chartDeployments())
	b.denied = func(user, _ string) bool { return user == deletionAccount }
	texts := findingsWith(doctor.Failed, b.runCheck("rights"))
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
	found := b.runCheck("rights")
	require.Empty(t, findingsWith(doctor.Failed, found))
	requireFinding(t, doctor.Skipped, found, "services", "not known")
	requireFinding(t, doctor.Warning, found, "you")
}
