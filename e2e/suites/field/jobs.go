package field

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// decodeMetadata reads the metadata of a step into that of its object.
func (r *run) decodeMetadata(step *jobStep, into *metav1.ObjectMeta) {
	data, err := json.Marshal(step.Metadata)
	require.NoError(r.t, err)
	require.NoError(r.t, decodeStrictly(data, into), "metadata")
	into.Namespace, into.Name = site.Server, cmp.Or(step.Name, r.prefix)
}

func (r *run) backUp(step *jobStep) {
	b := &velerov1.Backup{}
	if step.Spec != nil {
		require.NoError(r.t, decodeStrictly(step.Spec, &b.Spec), "spec")
	}
	r.decodeMetadata(step, &b.ObjectMeta)
	b.Spec.StorageLocation = cmp.Or(b.Spec.StorageLocation, r.bucket.Location)
	r.backup = b.Name
	r.backups.runBackup(func() {
		require.NoError(r.t, r.Client.Create(r.t.Context(), b))
		if step.Wait == nil || *step.Wait {
			r.awaitBackup(b.Name, &step.jobResult)
		}
	})
}

func (r *run) restoreBackup(step *jobStep) {
	o := &velerov1.Restore{}
	if step.Spec != nil {
		require.NoError(r.t, decodeStrictly(step.Spec, &o.Spec), "spec")
	}
	r.decodeMetadata(step, &o.ObjectMeta)
	if o.Spec.ScheduleName == "" {
		o.Spec.BackupName = cmp.Or(o.Spec.BackupName, r.backup)
	}
	again := o.DeepCopy()
	require.NoError(r.t, r.Client.Create(r.t.Context(), o))
	if step.Wait == nil || *step.Wait {
		r.awaitRestore(o.Name, &step.jobResult)
		r.prepareRepeat(again, step.Again)
	}
}

// prepareRepeat sets r.repeat: it creates a second Restore with the same spec, and checks that it creates and updates nothing.
func (r *run) prepareRepeat(again *velerov1.Restore, want *jobResult) {
	if want == nil {
		want = &jobResult{}
	}
	if want.Skip != "" {
		return
	}
	again.Name += "-again"
	r.repeat = func() {
		require.NoError(r.t, r.Client.Create(r.t.Context(), again))
		r.awaitRestore(again.Name, want)
		if want.expectedPhase() == string(velerov1.RestorePhaseFailedValidation) {
			return
		}
		for kind, objects := range r.readResourceList(layout.RestoreResourceList(again.Name)) {
			for _, text := range objects {
				require.False(r.t, strings.HasSuffix(text, "(created)") || strings.HasSuffix(text, "(updated)"), "a second restore does something: %s %s", kind, text)
			}
		}
	}
}

func (r *run) awaitJob(step *jobStep) {
	if step.Backup != "" {
		r.awaitBackup(step.Backup, &step.jobResult)
	} else {
		r.awaitRestore(step.Restore, &step.jobResult)
	}
}

func (r *run) awaitBackup(name string, want *jobResult) {
	r.t.Helper()
	b := &velerov1.Backup{}
	r.awaitCondition("Backup "+name+" ends", func(ctx context.Context) error {
		if err := r.checkEnded("Backup", name); err != nil {
			return err
		}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: site.Server, Name: name}, b)
		if err == nil && !b.Status.Phase.Terminal() {
			err = fmt.Errorf("it is %s", b.Status.Phase)
		}
		return err
	})
	r.checkResult("Backup "+name, want, string(b.Status.Phase), b.Status.FailureReason, b.Status.ValidationErrors, layout.BackupResults(name), layout.BackupLog(name))
}

// checkEnded asks the history, which costs no request, whether a job may have ended.
func (r *run) checkEnded(kind, name string) error {
	steps := r.History.Of(kind, name)
	if len(steps) == 0 {
		return fmt.Errorf("%s %s is not seen", kind, name)
	}
	if last := steps[len(steps)-1].Phase; !velerov1.BackupPhase(last).Terminal() {
		return fmt.Errorf("it is %s", last)
	}
	return nil
}

func (r *run) awaitRestore(name string, want *jobResult) {
	r.t.Helper()
	o := &velerov1.Restore{}
	r.awaitCondition("Restore "+name+" ends", func(ctx context.Context) error {
		if err := r.checkEnded("Restore", name); err != nil {
			return err
		}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: site.Server, Name: name}, o)
		if err == nil && !o.Status.Phase.Terminal() {
			err = fmt.Errorf("it is %s", o.Status.Phase)
		}
		return err
	})
	results, log := r.checkResult("Restore "+name, want, string(o.Status.Phase), o.Status.FailureReason, o.Status.ValidationErrors, layout.RestoreResults(name), layout.RestoreLog(name))
	if o.Status.Phase != velerov1.RestorePhaseFailedValidation {
		r.checkNothingMissing(o, results, log)
	}
}

// checkResult compares how a job ended with what the case says, and returns its warnings and errors, and its log.
func (r *run) checkResult(what string, want *jobResult, phase, reason string, validation []string, resultsKey, logKey string) (results joblog.Results, log string) {
	r.t.Helper()
	if phase != string(velerov1.BackupPhaseFailedValidation) {
		require.NoError(r.t, json.Unmarshal(r.bucket.ReadZipped(r.t, resultsKey), &results))
		log = string(r.bucket.ReadZipped(r.t, logKey))
	}
	warnings, errs := listMessages(&results.Warnings), listMessages(&results.Errors)
	shown := fmt.Sprintf("%s: %s %s\nvalidation: %q\nwarnings: %q\nerrors: %q", what, phase, reason, validation, warnings, errs)
	if len(warnings)+len(errs) > 0 {
		r.t.Log(shown)
	}
	require.Equal(r.t, want.expectedPhase(), phase, shown)
	requireEach(r, want.Validation, validation, shown)
	requireEach(r, want.Warnings, warnings, shown)
	requireEach(r, want.Errors, errs, shown)
	for _, text := range want.Log {
		require.Contains(r.t, log, text, what)
	}
	return results, log
}

// requireEach wants each text in exactly one message, and no further message.
func requireEach(r *run, texts, messages []string, shown string) {
	r.t.Helper()
	left := slices.Clone(messages)
	for _, text := range texts {
		i := slices.IndexFunc(left, func(message string) bool { return strings.Contains(message, text) })
		require.GreaterOrEqual(r.t, i, 0, "nothing says %q\n%s", text, shown)
		left = slices.Delete(left, i, i+1)
	}
	require.Empty(r.t, left, "said, but not expected\n%s", shown)
}

// listMessages returns the messages of a result, of each scope.
func listMessages(r *joblog.Result) []string {
	messages := slices.Concat(r.Velero, r.Cluster)
	for _, of := range r.Namespaces {
		messages = append(messages, of...)
	}
	return messages
}

// readResourceList reads a resource list: names of objects by "<apiVersion>/<Kind>".
func (r *run) readResourceList(key string) map[string][]string {
	r.t.Helper()
	list := map[string][]string{}
	require.NoError(r.t, json.Unmarshal(r.bucket.ReadZipped(r.t, key), &list))
	return list
}

// runTool runs the command-line tool and compares how it ends.
func (r *run) runTool(step *commandStep) {
	r.t.Helper()
	binary, err := testbed.Product("holdfast")
	require.NoError(r.t, err)
	tool := &product.CLI{Binary: binary, Kubeconfig: r.Cluster.Kubeconfig(), Namespace: site.Server}
	out, err := tool.Run(r.t.Context(), step.Holdfast...)
	code := 0
	var exit *product.ExitError
	if errors.As(err, &exit) {
		out, code, err = exit.Output, exit.Code, nil
	}
	require.NoError(r.t, err)
	require.Equal(r.t, step.Code, code, out)
	for _, text := range step.Says {
		require.Contains(r.t, out, text)
	}
}
