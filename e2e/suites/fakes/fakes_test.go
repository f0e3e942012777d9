package fakes

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// TestTheAPIServerOfTestsIsLikeARealOne runs on a real API server, etcd and garbage collector what
// kubetest's own test runs on its server.
func TestTheAPIServerOfTestsIsLikeARealOne(t *testing.T) {
	// Without its cache the API server answers old revisions from etcd alone.
	cluster := testbed.StartT(t, func(c *testbed.Config) { c.APIServerArgs = []string{"--watch-cache=false"} })
	kubetest.Conform(t, kubetest.Site{
		Config:  cluster.RestConfig(),
		Compact: func(ctx context.Context) error { return compactEtcd(ctx, cluster) },
		Collect: func() {}, // the controller manager collects by itself
	})
}

// compactEtcd makes etcd forget every revision but the newest.
func compactEtcd(ctx context.Context, cluster *testbed.Cluster) error {
	client, err := kubernetes.NewForConfig(cluster.RestConfig())
	if err != nil {
		return err
	}
	// A write moves the revision on: etcd keeps what there is at the one that it compacts to.
	made, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "compact-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"revision":%q,"physical":true}`, made.ResourceVersion)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cluster.EtcdURL()+"/v3/kv/compaction", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answered %s", response.Status)
	}
	return nil
}
