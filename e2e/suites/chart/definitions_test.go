package chart_test

import (
	"context"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
)

const component = "app.kubernetes.io/component"

// ofJob is the label that the Job controller gives the Pods of a Job.
const ofJob = "batch.kubernetes.io/job-name"

// runJobs does for the Pods of the chart's Jobs what a node does, until the test ends: each is a
// process with the Pod's arguments and the rights of its account, and its exit code is the Pod's
// phase.
func (p *chartPlace) runJobs(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		for tick := time.NewTicker(site.Look); ctx.Err() == nil; {
			pods := &corev1.PodList{}
			if p.client.List(ctx, pods, client.HasLabels{ofJob}) == nil {
				for i := range pods.Items {
					if pod := &pods.Items[i]; pod.Status.Phase == corev1.PodPending {
						p.runPod(ctx, t, pod)
					}
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	})
}

func (p *chartPlace) runPod(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	binary, err := testbed.Product("holdfast")
	if err != nil {
		t.Error(err)
		return
	}
	user := "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
	kubeconfig, err := p.cluster.KubeconfigFor(user, "system:serviceaccounts", "system:serviceaccounts:"+pod.Namespace, "system:authenticated")
	if err != nil {
		t.Error(err)
		return
	}
	pod.Status.Phase = corev1.PodSucceeded
	out, err := exec.CommandContext(ctx, binary, append(slices.Clone(pod.Spec.Containers[0].Args), "--kubeconfig="+kubeconfig)...).CombinedOutput()
	if err != nil {
		t.Logf("a Pod of the Job failed, another one follows: %v: %s", err, out)
		pod.Status.Phase = corev1.PodFailed
	}
	if err := p.client.Status().Update(ctx, pod); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// addsToDefinitions upgrades a release in a cluster whose definition of backups is older, and has
// something of another installer in it.
func (p *chartPlace) addsToDefinitions(t *testing.T) {
	const older, added, foreign = "backups.velero.io", "uploaderConfig", "foreign"
	clients, err := clientset.NewForConfig(p.cluster.RestConfig())
	require.NoError(t, err)
	api := clients.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := api.Get(t.Context(), older, metav1.GetOptions{})
	require.NoError(t, err)
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	require.Contains(t, spec, added)
	delete(spec, added)
	spec[foreign] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	former := crd.Spec.Versions[0].DeepCopy()
	former.Name, former.Storage = "v1beta1", false
	crd.Spec.Versions = append(crd.Spec.Versions, *former)
	_, err = api.Update(t.Context(), crd, metav1.UpdateOptions{})
	require.NoError(t, err)
	versions := func() map[string]int64 {
		list, err := api.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		all := map[string]int64{}
		for i := range list.Items {
			all[list.Items[i].Name] = list.Items[i].Generation
		}
		return all
	}
	before := versions()

	p.runHelm(t, namespace, "upgrade", "--values", "testdata/velero-aws.yaml", "--set", "doctor.enabled=true")

	crd, err = api.Get(t.Context(), older, metav1.GetOptions{})
	require.NoError(t, err)
	spec = crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	require.Contains(t, spec, added)
	require.Contains(t, spec, foreign, "nothing is removed")
	require.Len(t, crd.Spec.Versions, 2, "no version is removed")
	after := versions()
	require.Equal(t, before[older]+1, after[older])
	delete(before, older)
	delete(after, older)
	require.Equal(t, before, after, "nothing else changes")
	p.leavesNoJob(t, "definitions")
	p.leavesNoJob(t, "doctor")
}

// leavesNoJob waits until what a Job consisted of is gone.
func (p *chartPlace) leavesNoJob(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, list := range []client.ObjectList{&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "JobList"}},
			&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccountList"}},
			&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleList"}},
			&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBindingList"}}} {
			if p.client.List(t.Context(), list, client.MatchingLabels{component: name}) != nil || len(list.(*metav1.PartialObjectMetadataList).Items) > 0 {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "the Job %s, its account and its rights are gone", name)
}

// The Job may create definitions, and read and change those of Holdfast: it can remove none, and
// sees nothing else.
func TestTheJobMayOnlyAddToDefinitions(t *testing.T) {
	all, err := crds.All()
	require.NoError(t, err)
	var names []string
	for _, crd := range all {
		names = append(names, crd.Name)
	}
	objects := renderChart(t)
	given := roleRules(t, objects, ofService("definitions"))
	require.Len(t, given, 2)
	require.Equal(t, []string{"create"}, given[0].Verbs)
	require.Equal(t, []string{"get", "update"}, given[1].Verbs)
	require.Equal(t, names, given[1].ResourceNames)
	for _, rule := range given {
		require.Equal(t, []string{"customresourcedefinitions"}, rule.Resources)
	}
	require.Nil(t, objectNamed(renderChart(t, "--set", "upgradeCRDs=false"), "Job", chart.Release+"-definitions"))
}
