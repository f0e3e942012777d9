package restore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

type fields = map[string]any

func newObject(apiVersion, kind, namespace, name string, more fields) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields{"apiVersion": apiVersion, "kind": kind}}
	maps.Copy(u.Object, more)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// workload replaces the Pods of a Deployment, which have no kubelet here: it serves on a port once
// the Deployment and the Secret with its certificate are in the cluster, and ready reports that.
type workload struct {
	port   int
	things sync.Map // names of aggregated objects that were created

	conversions, judged atomic.Int64
}

// startServing serves when deployment exists and ready is true.
func (w *workload) startServing(t *testing.T, b *bench, deployment string, ready func(context.Context) bool) {
	t.Helper()
	server := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.serveWorkload(ctx, b, deployment, ready, server) }()
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
}

func (w *workload) serveWorkload(ctx context.Context, b *bench, deployment string, ready func(context.Context) bool, server *http.Server) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	secret, found := &corev1.Secret{}, newObject("apps/v1", "Deployment", "hook", deployment, nil)
	for b.client.Get(ctx, client.ObjectKeyFromObject(found), found) != nil || !ready(ctx) ||
		b.client.Get(ctx, client.ObjectKey{Namespace: "hook", Name: "tls"}, secret) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	certificate, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(w.port)), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	err = server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ServeHTTP implements http.Handler: an admission webhook, a conversion webhook, and an aggregated
// API.
func (w *workload) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var body fields
	_ = json.NewDecoder(r.Body).Decode(&body)
	request, _ := body["request"].(fields)
	status := http.StatusOK
	var answer fields
	switch {
	case r.URL.Path == "/validate":
		w.judged.Add(1)
		answer = fields{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": fields{"uid": request["uid"], "allowed": true}}
	case r.URL.Path == "/convert" && w.conversions.Add(1) <= 3:
		status, answer = http.StatusServiceUnavailable, fields{}
	case r.URL.Path == "/convert":
		objects, _ := request["objects"].([]any)
		for _, o := range objects {
			if object, ok := o.(fields); ok {
				object["apiVersion"] = request["desiredAPIVersion"]
			}
		}
		answer = fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
			"response": fields{"uid": request["uid"], "convertedObjects": objects, "result": fields{"status": "Success"}}}
	default:
		status, answer = w.answerAPI(r, body)
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(answer)
}

const thingsGroup = "things.example.org"

// answerAPI answers as an API server for one kind.
func (w *workload) answerAPI(r *http.Request, body fields) (int, fields) {
	switch path := r.URL.Path; {
	case path == "/apis/"+thingsGroup+"/v1":
		return http.StatusOK, fields{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": thingsGroup + "/v1", "resources": []any{fields{
			"name": "things", "singularName": "thing", "kind": "Thing", "namespaced": true, "verbs": []any{"create", "delete", "get", "list"}}}}
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/things"):
		meta, _ := body["metadata"].(fields)
		meta["uid"] = fmt.Sprint("thing-", meta["name"])
		w.things.Store(meta["name"], true)
		return http.StatusCreated, body
	case strings.HasSuffix(path, "/things"):
		return http.StatusOK, fields{"kind": "ThingList", "apiVersion": thingsGroup + "/v1", "metadata": fields{"resourceVersion": "7"}, "items": []any{}}
	}
	return http.StatusNotFound, fields{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
}

// newCertificate is one for loopback that signs itself.
func newCertificate(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// newWebhook is a fail-closed configuration for the creation of some resources, in one namespace or
// everywhere.
func newWebhook(name, url, namespace string, bundle string, groups, resources []any) *unstructured.Unstructured {
	hook := fields{"name": name + ".example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
		"timeoutSeconds": int64(5), "clientConfig": fields{"url": url + "/validate", "caBundle": bundle},
		"rules": []any{fields{"operations": []any{"CREATE", "UPDATE"}, "apiGroups": groups, "apiVersions": []any{"*"}, "resources": resources}}}
	if namespace != "" {
		hook["namespaceSelector"] = fields{"matchLabels": fields{"kubernetes.io/metadata.name": namespace}}
	}
	return newObject("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", name, fields{"webhooks": []any{hook}})
}

func newDeployment(name string) *unstructured.Unstructured {
	labels := fields{"app": name}
	return newObject("apps/v1", "Deployment", "hook", name, fields{"spec": fields{"replicas": int64(1), "selector": fields{"matchLabels": labels},
		"template": fields{"metadata": fields{"labels": labels}, "spec": fields{"containers": []any{fields{"name": "c", "image": "registry.invalid/c:1"}}}}}})
}

func widgetDefinition(url, bundle string) *unstructured.Unstructured {
	version := func(name string, storage bool) fields {
		return fields{"name": name, "served": true, "storage": storage, "schema": fields{"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
	}
	return newObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.net", fields{"spec": fields{
		"group": "example.net", "scope": "Namespaced", "names": fields{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
		"versions": []any{version("v1", false), version("v1beta1", true)},
		"conversion": fields{"strategy": "Webhook", "webhook": fields{"conversionReviewVersions": []any{"v1"},
			"clientConfig": fields{"url": url + "/convert", "caBundle": bundle}}}}})
}

// storeWorkload adds everything to the backup. The aggregated API is served on port api.
func (w *workload) storeWorkload(t *testing.T, backup *veleroBackup, api int, cert, key []byte) {
	t.Helper()
	url, bundle := "https://127.0.0.1:"+strconv.Itoa(w.port), base64.StdEncoding.EncodeToString(cert)
	add := func(group, version, resource string, obj *unstructured.Unstructured) {
		obj.SetUID(types.UID("old-" + resource + obj.GetNamespace() + obj.GetName()))
		backup.addObject(t, schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, obj)
	}
	add("", "v1", "namespaces", newObject("v1", "Namespace", "", "hook", nil))
	add("", "v1", "namespaces", newObject("v1", "Namespace", "", "app", nil))
	add("", "v1", "secrets", newObject("v1", "Secret", "hook", "tls", fields{"type": "kubernetes.io/tls", "data": fields{
		"tls.crt": bundle, "tls.key": base64.StdEncoding.EncodeToString(key), "ca.crt": bundle}}))
	add("apps", "v1", "deployments", newDeployment("webhook"))
	add("apps", "v1", "deployments", newDeployment("api"))
	add("", "v1", "services", newObject("v1", "Service", "hook", "api", fields{"spec": fields{"type": "ExternalName", "externalName": "localhost"}}))
	add("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", newWebhook("judge", url, "", bundle,
		[]any{"", "apps", "example.net"}, []any{"secrets", "configmaps", "services", "deployments", "widgets"}))
	add("apiextensions.k8s.io", "v1", "customresourcedefinitions", widgetDefinition(url, bundle))
	add("apiregistration.k8s.io", "v1", "apiservices", newObject("apiregistration.k8s.io/v1", "APIService", "", "v1."+thingsGroup, fields{"spec": fields{
		"group": thingsGroup, "version": "v1", "insecureSkipTLSVerify": true, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
		"service": fields{"namespace": "hook", "name": "api", "port": int64(api)}}}))
	for i := range each {
		name := fmt.Sprintf("o%02d", i)
		add("", "v1", "configmaps", newObject("v1", "ConfigMap", "app", name, fields{"data": fields{"k": "v"}}))
		add("example.net", "v1", "widgets", newObject("example.net/v1", "Widget", "app", name, fields{"spec": fields{"size": int64(i)}}))
		add(thingsGroup, "v1", "things", newObject(thingsGroup+"/v1", "Thing", "app", name, nil))
	}
}

// each is how many objects there are of a kind.
const each = 12

// TestNothingIsLostToWhatAdmits restores, with what they judge, convert and serve, a fail-closed
// webhook, a conversion webhook and an aggregated API, whose workloads are in the same backup.
// Another configuration of the webhook has survived in the cluster: all objects that it judges were
// errors until the webhook ran.
func TestNothingIsLostToWhatAdmits(t *testing.T) {
	b := startBench(t)
	ports, err := testbed.FreePorts(2)
	require.NoError(t, err)
	cert, key := newCertificate(t)
	hook, api := &workload{port: ports[0]}, &workload{port: ports[1]}
	backup := b.createBackup(t, "admitting")
	hook.storeWorkload(t, backup, api.port, cert, key)
	backup.closeTarball(t)
	survivor := newWebhook("survivor", "https://127.0.0.1:"+strconv.Itoa(hook.port), "app", base64.StdEncoding.EncodeToString(cert), []any{""}, []any{"configmaps"})
	require.NoError(t, b.client.Create(t.Context(), survivor))
	closed := newObject("v1", "ConfigMap", "app", "probe", nil)
	require.NoError(t, b.client.Create(t.Context(), newObject("v1", "Namespace", "", "app", nil)))
	require.Eventually(t, func() bool {
		err := b.client.Create(t.Context(), closed.DeepCopy(), client.DryRunAll)
		return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
	}, time.Minute, 50*time.Millisecond, "the survivor is in force, and nothing answers for it")

	hook.startServing(t, b, "webhook", func(context.Context) bool { return true })
	api.startServing(t, b, "api", func(ctx context.Context) bool { return isUnavailable(ctx, b) })
	restore := b.runRestore(t, "admitted", velerov1.RestoreSpec{BackupName: "admitting"})
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, messagesOf(t, b, restore))
	require.Zero(t, restore.Status.Errors)
	for object, action := range b.readActions(t, "admitted") {
		if object != "v1/Namespace app" {
			require.Equal(t, "created", action, object)
		}
	}
	list := newObject("example.net/v1", "WidgetList", "", "", nil)
	var found unstructured.UnstructuredList
	found.SetGroupVersionKind(list.GroupVersionKind())
	require.NoError(t, b.client.List(t.Context(), &found, client.InNamespace("app")))
	require.Len(t, found.Items, each)
	for i := range each {
		name := fmt.Sprintf("o%02d", i)
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: name}, &corev1.ConfigMap{}))
		_, ok := api.things.Load(name)
		require.True(t, ok, name)
	}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "judge"}, newObject("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "judge", nil)))
	require.GreaterOrEqual(t, hook.judged.Load(), int64(each), "by the survivor")
	require.Greater(t, hook.conversions.Load(), int64(3), "conversions were refused at first")
}

// isUnavailable reports that the APIService is there and does not answer.
func isUnavailable(ctx context.Context, b *bench) bool {
	found := newObject("apiregistration.k8s.io/v1", "APIService", "", "v1."+thingsGroup, nil)
	if b.client.Get(ctx, client.ObjectKeyFromObject(found), found) != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(fields); ok && condition["type"] == "Available" {
			return condition["status"] == "False"
		}
	}
	return false
}
