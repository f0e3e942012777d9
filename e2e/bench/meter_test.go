package bench

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestItemCounter(t *testing.T) {
	for text, want := range map[string]int64{
		`{"metadata":{"continue":"x"},"items":[{"data":{"items":"[{}]"},"items":[{},{}]},{"a":"\"}]}\\"},{}]}`: 3,
		`{"items":[{"metadata":{}},{}],"metadata":{"resourceVersion":"1"}}`:                                    2,
		`{"subjects":[{},{}],"roleRef":{"items":[{}]}}`:                                                        0, // no list
		`{"items":[]}`:                0,
		`{"items":null}`:              0,
		`{ "items" : [ { } , { } ] }`: 2,
	} {
		require.True(t, json.Valid([]byte(text)), text)
		c := &itemCounter{}
		require.Equal(t, want, c.countPiece([]byte(text)), text)
		pieces, sum := &itemCounter{}, int64(0)
		for i := range len(text) {
			sum += pieces.countPiece([]byte(text[i : i+1]))
		}
		require.Equal(t, want, sum, "byte by byte: %s", text)
	}
}

// TestListMeterCountsWhatAClientLists: the client prefers protobuf and packed answers, as most do.
func TestListMeterCountsWhatAClientLists(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") != "application/json" || r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, Items: make([]corev1.ConfigMap, 7)}
		_ = json.NewEncoder(w).Encode(list) // a client that left is no failure of the server
	}))
	t.Cleanup(server.Close)
	m, err := startListMeter(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(m.Close)
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	require.NoError(t, err)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	for range 2 {
		list, err := client.CoreV1().ConfigMaps("x").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 7)
	}
	require.Equal(t, int64(14), m.objects.Load())
}

func TestStoreMeterCountsWhatIsSent(t *testing.T) {
	server := testbed.StartS3T(t)
	require.NoError(t, server.CreateBucket(t.Context(), bucket))
	m, err := startStoreMeter(server)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	client := s3.New(server.Client().Options(), func(o *s3.Options) { o.BaseEndpoint = aws.String(m.URL) })
	put := func(key string) error {
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String(key), Body: bytes.NewReader(make([]byte, 1000)), IfNoneMatch: aws.String("*"),
		})
		return err
	}
	require.NoError(t, put("backups/a/one"))
	require.NoError(t, put("backups/a/two"))
	require.NoError(t, put("backups/b/one"))
	require.Error(t, put("backups/a/one"), "refused, and yet sent")
	require.InDelta(t, 3000, m.sentBytes("backups/a/"), 300, "the SDK frames what it sends")
	require.False(t, m.firstSeen("backups/a/o").IsZero())
	require.True(t, m.firstSeen("backups/c").IsZero())
}
