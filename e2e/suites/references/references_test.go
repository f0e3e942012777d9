package references

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const backup = "estate"

// refusal is how long a webhook that comes back cannot be called.
const refusal = 10 * time.Second

// bed is a site with two restore-runners, the published definitions, and a backup of the estate.
type bed struct {
	*site.Site
	webhook *webhook
	estate  *estate
	bucket  *site.Bucket
	path    string // of the bucket's directory
}

// newBed starts a site with the published definitions, those of more too, and creates the estate.
func newBed(t *testing.T, more map[string][]string) *bed {
	t.Helper()
	b := &bed{estate: readEstate(t)}
	b.Site = site.Start(t, site.Config{Counts: map[string]int{"restore-runner": 2}, Args: map[string][]string{
		"restore-runner": {"--claim-timeout", "5s"}, "manifest-indexer": {"--backup-sync-period", "1s"},
	}})
	installDefinitions(t, b.Site, definitionFiles)
	installDefinitions(t, b.Site, more)
	b.bucket, b.path = site.FileBucket(t, backup)
	b.ReachFiles(t, b.path, b.bucket)
	b.estate.createObjects(t, b.Site)
	b.webhook = startWebhook(t, b.Site)
	return b
}

// backUp backs the estate up.
func (b *bed) backUp(t *testing.T) {
	t.Helper()
	b.Backup(t, backup, b.bucket, slices.Collect(maps.Keys(b.estate.spaces))...)
	require.Zero(t, b.BackupCompletes(t, backup).Status.Warnings)
}

// TestPublishedDefinitions shares one cluster and one backup.
func TestPublishedDefinitions(t *testing.T) {
	b := newBed(t, nil)
	b.backUp(t)
	t.Run("the manifest has what objects name", b.namesAreFound)
	t.Run("a backup in Velero's layout", b.showForeign)
	for _, scenario := range []struct {
		name string
		run  func(t *testing.T, name string)
	}{
		{"killed runner", b.killRunner},
		{"webhook that cannot be called", b.refuseForAWhile},
		{"one cluster of two", b.restoreOneCluster},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			b.estate.destroy(t, b.Site)
			scenario.run(t, strings.ReplaceAll(scenario.name, " ", "-"))
		})
	}
}

// namesAreFound wants every reference in the manifest. It is what rules and schemas find in objects that the API
// server has pruned by the published schemas.
func (b *bed) namesAreFound(t *testing.T) {
	type item struct {
		Kind, Name string
		References []struct{ Kind, Namespace, Name, Relation string }
	}
	var manifest struct{ Kinds map[string]map[string][]item }
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, "backups/"+backup+"/manifest.json.gz"), &manifest))
	found := map[string]map[string][]string{}
	for _, spaces := range manifest.Kinds {
		for namespace, items := range spaces {
			if found[namespace] == nil {
				found[namespace] = map[string][]string{}
			}
			for _, i := range items {
				for _, r := range i.References {
					if r.Namespace == namespace && namespace != "" {
						found[namespace][i.Kind+" "+i.Name] = append(found[namespace][i.Kind+" "+i.Name], r.Kind+" "+r.Name)
					}
				}
			}
		}
	}
	for namespace, objects := range namedObjects() {
		for object, names := range objects {
			for i := range names {
				names[i] = strings.TrimPrefix(names[i], later)
			}
			require.ElementsMatch(t, names, found[namespace][object], object)
			delete(found[namespace], object)
		}
		require.Empty(t, found[namespace])
	}
}

// restoreBeside restores everything and requires that it is as before, made in the right order. Before is that of
// setBefore, during is called once the Restore is created.
func (b *bed) restoreBeside(t *testing.T, name string, before func(*admissionv1.AdmissionRequest) bool, during func()) {
	t.Helper()
	made := watchCreations(t, b.Site, b.estate)
	marks := &pauseMarks{}
	b.webhook.setBefore(func(r *admissionv1.AdmissionRequest) bool {
		marks.notePauses(t, b.Client, r.Namespace)
		return before(r)
	})
	defer b.webhook.setBefore(nil)
	require.NoError(t, b.Client.Create(t.Context(), &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name, Annotations: map[string]string{"holdfast.io/run-again": "certificaterequests.cert-manager.io"}},
		Spec:       velerov1.RestoreSpec{BackupName: backup},
	}))
	during()
	restore := b.RestoreEnds(t, name)
	results := string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz"))
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, "%s %s", restore.Status.FailureReason, results)
	require.Zero(t, restore.Status.Errors+restore.Status.Warnings, results)
	require.NotContains(t, string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-logs.gz")), "that waits for it")

	made.awaitCreations(t, b.estate)
	require.Empty(t, made.early())
	require.Empty(t, b.estate.faults(t, b.Site))
	marks.require(t, b.Client)
	b.collectGarbage(t)
	require.Empty(t, b.estate.faults(t, b.Site), "the garbage collector removes nothing")
}

// killRunner kills the runner when the third Machine is to be created.
func (b *bed) killRunner(t *testing.T, name string) {
	var machines atomic.Int64
	reached, gone := make(chan struct{}), make(chan struct{})
	before := func(r *admissionv1.AdmissionRequest) bool {
		if r.Kind.Kind == "Machine" && machines.Add(1) == 3 {
			close(reached)
			<-gone
		}
		return true
	}
	b.restoreBeside(t, name, before, func() {
		defer close(gone)
		select {
		case <-reached:
		case <-time.After(site.Patience):
			require.Fail(t, "no third Machine is created")
		}
		holder := b.Holder(t, name)
		holder.Kill()
		<-holder.Done()
	})
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
}

// refuseForAWhile has a webhook that cannot be called for some time after the first request.
func (b *bed) refuseForAWhile(t *testing.T, name string) {
	var once sync.Once
	var until time.Time
	var refused atomic.Int64
	b.restoreBeside(t, name, func(*admissionv1.AdmissionRequest) bool {
		once.Do(func() { until = time.Now().Add(refusal) })
		if time.Now().Before(until) {
			refused.Add(1)
			return false
		}
		return true
	}, func() {})
	require.Positive(t, refused.Load())
}

// collectGarbage returns when the garbage collector knows all kinds, and has looked at everything that was there
// before: it removes objects that refer to an owner that never was, twice.
func (b *bed) collectGarbage(t *testing.T) {
	t.Helper()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: "11111111-2222-3333-4444-555555555555"}
	for i := range 2 {
		for _, file := range []string{"certificates", "databases"} {
			canary := b.estate.spaces[file][0].DeepCopy()
			canary.SetName(fmt.Sprintf("canary-%d", i))
			canary.SetResourceVersion("")
			canary.SetOwnerReferences([]metav1.OwnerReference{owner})
			require.NoError(t, b.Client.Create(t.Context(), canary))
			require.Eventually(t, func() bool {
				return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(canary), canary))
			}, site.Patience, site.Look, "%s goes", nameOf(canary))
		}
	}
}
