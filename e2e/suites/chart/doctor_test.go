package chart_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// hookJob is the Job of a hook; nil when there is none.
func hookJob(t *testing.T, objects []*unstructured.Unstructured, name string) *batchv1.Job {
	t.Helper()
	object := objectNamed(objects, "Job", chart.Release+"-"+name)
	if object == nil {
		return nil
	}
	job := &batchv1.Job{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, job, true))
	return job
}

func TestDoctorRunsBeforeAnInstallationWhereItIsTurnedOn(t *testing.T) {
	require.Nil(t, hookJob(t, renderChart(t), "doctor"))
	job := hookJob(t, renderChart(t, "--set", "doctor.enabled=true,features={EnableCSI}"), "doctor")
	require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
	definitions := objectNamed(renderChart(t), "Job", chart.Release+"-definitions")
	require.Less(t, definitions.GetAnnotations()["helm.sh/hook-weight"], job.Annotations["helm.sh/hook-weight"], "after the definitions")
	require.Equal(t, chart.Release+"-doctor", job.Spec.Template.Spec.ServiceAccountName)
	args := job.Spec.Template.Spec.Containers[0].Args
	require.Equal(t, []string{"doctor", "--namespace=" + namespace, "--checks=kubernetes,definitions,velero", "--features=EnableCSI"}, args)

	binary, err := testbed.Product("holdfast")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestChecksOfDoctorCanBeSkipped(t *testing.T) {
	job := hookJob(t, renderChart(t, "--set", "doctor.enabled=true,doctor.skip={velero}"), "doctor")
	require.Contains(t, job.Spec.Template.Spec.Containers[0].Args, "--checks=kubernetes,definitions")
	all := renderChart(t, "--set", "doctor.enabled=true,doctor.skip={velero,kubernetes,definitions}")
	require.Nil(t, hookJob(t, all, "doctor"))
	require.Nil(t, objectNamed(all, "ServiceAccount", chart.Release+"-doctor"))
	_, err := chart.Render(t.Context(), t.TempDir(), namespace, "--set", "doctor.enabled=true,doctor.checks={locations}")
	require.ErrorContains(t, err, "/doctor/checks/0", "what makes no sense before an installation is refused")
}

// The account of the Job reads what the checks look at, and changes nothing.
func TestDoctorMayOnlyRead(t *testing.T) {
	given := roleRules(t, renderChart(t, "--set", "doctor.enabled=true"), ofService("doctor"))
	require.Len(t, given, 3)
	for _, rule := range given {
		for _, verb := range rule.Verbs {
			require.Contains(t, []string{"get", "list"}, verb)
		}
		require.NotContains(t, rule.Resources, "secrets")
		require.NotContains(t, strings.Join(rule.Resources, " "), "*")
	}
}
