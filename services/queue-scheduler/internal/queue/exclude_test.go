package queue_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// newLabelledBed is a bed whose validator is the real one, and these namespaces; the API server keeps
// their labels.
func newLabelledBed(t *testing.T, namespaces ...string) *bed {
	t.Helper()
	b := newBed(t, ledger.Limits{Backups: 1, Restores: 1}, interceptor.Funcs{})
	for _, name := range namespaces {
		require.NoError(t, b.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	main := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "main"}}
	main.Spec.Default, main.Status.Phase = true, velerov1.LocationPhaseAvailable
	require.NoError(t, b.c.Create(t.Context(), main))
	b.runScheduler(withValidator(&validate.Validator{
		Reader: b.c, Namespace: "velero", Locations: location.New(b.c, "velero"), Clock: clock.RealClock{},
		Version:  func(context.Context) (*version.Info, error) { return &version.Info{GitVersion: "v1.36.3"}, nil },
		Defaults: validate.Defaults{TTL: time.Hour, ResourceTimeout: time.Minute},
	}))
	return b
}

// excludeNamespace labels a namespace so that no backup takes it.
func (b *bed) excludeNamespace(name string) {
	b.t.Helper()
	ns := &corev1.Namespace{}
	require.NoError(b.t, b.c.Get(b.t.Context(), client.ObjectKey{Name: name}, ns))
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, ns, func(ns *corev1.Namespace) error {
		ns.Labels = map[string]string{velerov1.LabelExcludeFromBackup: "true"}
		return nil
	}))
}

// entryNamespaces returns the namespaces a backup was admitted for.
func (b *bed) entryNamespaces(name string) []string {
	b.t.Helper()
	e, found, err := b.ledger.Get(b.t.Context(), b.getBackup(name).UID)
	require.NoError(b.t, err)
	require.True(b.t, found)
	return e.Namespaces
}

// What a runner collects is fixed at admission: a namespace that carries the label by then is in no
// backup, however the backup selects it.
func TestANamespaceThatIsExcludedIsNotAdmitted(t *testing.T) {
	for name, tt := range map[string]struct{ included, admitted []string }{
		"everything": {nil, []string{"!team-b", "*"}},
		"a star":     {[]string{"*"}, []string{"!team-b", "*"}},
		"a pattern":  {[]string{"team-*"}, []string{"team-a", "team-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLabelledBed(t, "team-a", "team-b", "team-c")
			b.excludeNamespace("team-b")
			b.createBackup("one", 1, tt.included...)
			b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
			require.Equal(t, tt.admitted, b.entryNamespaces("one"))
			noted, err := json.Marshal(tt.admitted)
			require.NoError(t, err)
			require.Equal(t, string(noted), b.getBackup("one").Annotations["holdfast.io/namespaces"])
			require.Equal(t, []string{"team-b"}, b.getBackup("one").Spec.ExcludedNamespaces, "as Velero writes it")
		})
	}
}

// The label that comes while a backup waits counts, and one that goes.
func TestTheLabelIsReadAtAdmission(t *testing.T) {
	b := newLabelledBed(t, "team-a", "team-b", "team-c")
	b.createBackup("first", 1, "team-a")
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "first")
	b.setPhase("first", velerov1.BackupPhaseInProgress)
	b.createBackup("pattern", 2, "team-*")
	b.createBackup("named", 3, "team-c")
	b.requirePhase(velerov1.BackupPhaseQueued, "pattern", "named")
	b.excludeNamespace("team-c")
	b.setPhase("first", velerov1.BackupPhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "pattern")
	require.Equal(t, []string{"team-a", "team-b"}, b.entryNamespaces("pattern"))
	b.setPhase("pattern", velerov1.BackupPhaseCompleted)
	b.requirePhase(velerov1.BackupPhaseFailedValidation, "named")
	require.Contains(t, b.getBackup("named").Status.ValidationErrors[0], `"team-c" is included and labelled velero.io/exclude-from-backup`)
}
