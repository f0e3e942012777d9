package field

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// run is one case while it runs.
type run struct {
	*bed
	*reportCase
	t        *testing.T
	bucket   *site.Bucket
	location *velerov1.BackupStorageLocation
	saved    map[string]string
	backup   string // the last one
	// repeat is set by a Restore and called after the expectations that follow it; nil otherwise.
	repeat func()
	holds  []expectation // about the last restore
}

// prepareCase makes the location of a case, which is validated while other cases run.
func (b *bed) prepareCase(t *testing.T, c *reportCase) *run {
	r := &run{bed: b, reportCase: c, t: t, saved: map[string]string{
		"manifest-indexer": b.Fleet.Of("manifest-indexer")[0].GRPC, "restore-runner": b.Fleet.Of("restore-runner")[0].GRPC,
	}}
	r.location = &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: c.prefix}}
	if c.Movers {
		r.bucket = site.S3Bucket(b.whole, b.s3, c.prefix)
		r.location.Spec.Provider, r.location.Spec.Config = "aws", b.s3.LocationConfig()
		r.location.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: s3Secret}, Key: "cloud"}
	} else {
		var dir string
		r.bucket, dir = site.FileBucket(b.whole, c.prefix)
		r.location.Spec.Provider, r.location.Spec.Config = holdfast.ProviderFile, map[string]string{"path": dir}
	}
	r.location.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: c.prefix}
	require.NoError(t, b.Client.Create(t.Context(), r.location))
	return r
}

// runCase takes the steps of a case. With -v the log says how long each took.
func (r *run) runCase() {
	r.awaitCondition("its location is available", func(ctx context.Context) error {
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(r.location), r.location)
		if err == nil && r.location.Status.Phase != velerov1.LocationPhaseAvailable {
			err = fmt.Errorf("it is %s", r.location.Status.Phase)
		}
		return err
	})
	if r.Exclusive {
		r.t.Cleanup(r.removeShared)
	}
	for i, raw := range r.Steps {
		step := r.decodeStep(raw)
		if step.Expect == nil {
			r.endRestore()
		}
		began := time.Now()
		r.takeStep(step)
		r.t.Logf("step %d took %.1f s: %.40s", i+1, time.Since(began).Seconds(), raw)
	}
	r.endRestore()
}

// removeShared deletes what the case would have deleted, had it not failed: others follow on the same cluster.
func (r *run) removeShared() {
	if !r.t.Failed() {
		return
	}
	for _, raw := range r.Steps {
		step := &caseStep{}
		if decodeStrictly(raw, step) != nil {
			continue
		}
		for _, text := range step.Delete {
			if ref, err := r.resolveText(text, false); err == nil {
				_ = ref.resourceClient().Delete(context.WithoutCancel(r.t.Context()), ref.name, metav1.DeleteOptions{}) // the case has failed already
			}
		}
	}
}

// decodeStep replaces ${name} by what was saved under the name.
func (r *run) decodeStep(raw json.RawMessage) *caseStep {
	r.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(r.saved)) {
		raw = bytes.ReplaceAll(raw, []byte("${"+name+"}"), []byte(r.saved[name]))
	}
	step := &caseStep{}
	require.NoError(r.t, decodeStrictly(raw, step))
	return step
}

func (r *run) takeStep(step *caseStep) {
	switch {
	case step.Create != nil:
		r.createObjects(step.Create)
	case step.Patch != nil:
		r.patchObjects(step.Patch)
	case step.Status != nil:
		r.patchObjects(step.Status, "status")
	case step.Apply != nil:
		r.applyObjects(step.Apply)
	case step.Run != nil:
		r.runPods(step.Run)
	case step.Write != nil:
		r.writeFiles(step.Write)
	case step.Delete != nil:
		r.deleteObjects(step.Delete, false)
	case step.Destroy != nil:
		r.deleteObjects(step.Destroy, true)
	case step.Save != nil:
		r.saveValues(step.Save)
	case step.Backup != nil:
		r.backUp(step.Backup)
	case step.Restore != nil:
		r.restoreBackup(step.Restore)
	case step.Await != nil:
		r.awaitJob(step.Await)
	case step.Expect != nil:
		r.holds = append(r.holds, step.Expect...)
		r.expectAll(step.Expect)
	case step.Restart != "":
		r.restartServices(r.t)
	case step.Command != nil:
		r.runTool(step.Command)
	}
}

// endRestore repeats the last restore: it changes nothing, and what held before holds afterwards.
func (r *run) endRestore() {
	repeat, holds := r.repeat, r.holds
	r.repeat, r.holds = nil, nil
	if repeat != nil {
		repeat()
		r.expectAll(holds)
	}
}

func (r *run) saveValues(values map[string]value) {
	for name, v := range values {
		r.awaitCondition("a value for "+name, func(ctx context.Context) error {
			text, err := r.readValue(ctx, &v)
			if err == nil && text == "" {
				err = fmt.Errorf("%s of %s is empty", v.Path, v.Object)
			}
			r.saved[name] = text
			return err
		})
	}
}

// awaitCondition waits until condition returns no error. Its last error is what a failure says.
func (r *run) awaitCondition(what string, condition func(context.Context) error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), caseTime)
	defer cancel()
	var last error // what the condition said before its time was over
	for pause := site.Look; ; pause = min(pause*3/2, longestPause) {
		err := condition(ctx)
		switch {
		case err == nil:
			return
		case ctx.Err() == nil || last == nil:
			last = err
		}
		if ctx.Err() != nil {
			require.NoError(r.t, last, what)
		}
		r.pauseFor(pause)
	}
}

const (
	// caseTime ends what does not come. It judges no speed.
	caseTime = 2 * time.Minute
	// longestPause lies between the checks of what takes its time: many cases ask one API server.
	longestPause = 500 * time.Millisecond
)

func (r *run) pauseFor(pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-r.t.Context().Done():
	}
}
