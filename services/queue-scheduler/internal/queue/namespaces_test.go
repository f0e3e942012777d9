package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func (b *bed) annotateNamespace(name, value string) {
	b.t.Helper()
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, b.getBackup(name), func(o *velerov1.Backup) error {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, holdfast.AnnotationNamespaces, value)
		return nil
	}))
}

// loseLedger deletes the ledger and returns what a running backup is readmitted for.
func (b *bed) loseLedger(name string) []string {
	b.t.Helper()
	require.NoError(b.t, b.c.Delete(b.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}}))
	var entry ledger.Entry
	b.requireEventually("readmitted", func() bool {
		e, found, err := b.ledger.Get(b.t.Context(), types.UID("uid-"+name))
		entry = e
		return err == nil && found
	})
	return entry.Namespaces
}

func TestARebuiltLedgerHoldsTheNamespacesOfTheAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		selected string
		noted    string
		damage   string
		want     []string
	}{
		"a pattern":            {selected: "team-*", noted: `["team-a","team-b"]`, want: []string{"team-a", "team-b"}},
		"everything":           {selected: "*", noted: `["*"]`, want: []string{"*"}},
		"damaged, so anew":     {selected: "team-*", noted: `["team-a","team-b"]`, damage: `{"`, want: []string{"team-a", "team-b", "team-c"}},
		"says nothing, so too": {selected: "team-*", noted: `["team-a","team-b"]`, damage: `null`, want: []string{"team-a", "team-b", "team-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
			b.createBackup("one", 1, c.selected)
			b.annotateNamespace("one", `["set-by-somebody"]`)
			b.runScheduler()
			b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
			require.Equal(t, c.noted, b.getBackup("one").Annotations[holdfast.AnnotationNamespaces])
			b.setPhase("one", velerov1.BackupPhaseInProgress)
			if c.damage != "" {
				b.annotateNamespace("one", c.damage)
			}
			b.rules.addNamespaces("team-c")
			require.Equal(t, c.want, b.loseLedger("one"))
		})
	}
}

// An admission that was cut off is completed with the namespaces of its entry.
func TestTheNotedNamespacesAreThoseOfTheEntry(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	b.createBackup("one", 1, "team-*")
	b.setPhase("one", velerov1.BackupPhaseQueued)
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{
		UID: "uid-one", Kind: ledger.KindBackup, Namespace: "velero", Name: "one", Namespaces: []string{"team-a"}, Since: start,
	}, ledger.Limits{}))
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
	require.Equal(t, `["team-a"]`, b.getBackup("one").Annotations[holdfast.AnnotationNamespaces])
}

func TestTooManyNamespacesAreNotNoted(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	for i := range 3000 {
		b.rules.addNamespaces(fmt.Sprintf("team-%s-%04d", strings.Repeat("x", 40), i))
	}
	b.createBackup("one", 1, "team-*")
	b.annotateNamespace("one", `["set-by-somebody"]`)
	b.runScheduler()
	b.requirePhase(velerov1.BackupPhaseReadyToStart, "one")
	require.NotContains(t, b.getBackup("one").Annotations, holdfast.AnnotationNamespaces)
	b.setPhase("one", velerov1.BackupPhaseInProgress)
	require.Len(t, b.loseLedger("one"), 3002)
}
