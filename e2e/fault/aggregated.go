package fault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	apiGroup = "late.fault.example.com"
	served   = "fault-api" // a namespace with an object of an aggregated API, and the Service of that API
)

// apiLabels are those of all that the scenario stores.
var apiLabels = map[string]string{"fault.example.com/part-of": "api"}

// aggregatedAPI is an API server for one kind, which answers while it is up.
type aggregatedAPI struct {
	server *http.Server
	port   int
	up     atomic.Bool
	done   chan error

	mu     sync.Mutex
	things map[string]map[string]any // by namespace/name
}

// serveAggregated starts one that is up and has a thing in the namespace served.
func serveAggregated(ctx context.Context) (*aggregatedAPI, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	certificate, err := selfSigned()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	a := &aggregatedAPI{port: listener.Addr().(*net.TCPAddr).Port, done: make(chan error, 1), things: map[string]map[string]any{}}
	a.up.Store(true)
	a.putObject(served, "thing", map[string]any{"metadata": map[string]any{"namespace": served, "name": "thing", "labels": apiLabels}, "size": 1}, "")
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: patience}
	go func() {
		a.done <- a.server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	}()
	return a, nil
}

func (a *aggregatedAPI) close() error {
	err := a.server.Close()
	if end := <-a.done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// putObject stores an object as a manager created it.
func (a *aggregatedAPI) putObject(namespace, name string, object map[string]any, manager string) {
	object["apiVersion"], object["kind"] = apiGroup+"/v1", "Thing"
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["uid"], meta["resourceVersion"] = "thing-"+namespace+"-"+name, "7"
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		meta["managedFields"] = []any{map[string]any{"manager": manager, "operation": "Update", "apiVersion": apiGroup + "/v1", "time": meta["creationTimestamp"]}}
	}
	a.things[namespace+"/"+name] = object
}

// ServeHTTP implements http.Handler.
func (a *aggregatedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, answer := http.StatusServiceUnavailable, map[string]any(nil)
	if a.up.Load() {
		a.mu.Lock()
		status, answer = a.answerRequest(r)
		a.mu.Unlock()
	}
	if answer == nil {
		answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
		switch status {
		case http.StatusNotFound:
			answer["reason"] = metav1.StatusReasonNotFound
		case http.StatusConflict:
			answer["reason"] = metav1.StatusReasonAlreadyExists
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // who asked is gone
}

// answerRequest is the API's response; nil means a failure with the status. The caller holds the
// lock.
func (a *aggregatedAPI) answerRequest(r *http.Request) (int, map[string]any) {
	namespace, name := "", ""
	switch path := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case len(path) == 3:
		return http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": apiGroup + "/v1", "resources": []any{map[string]any{
			"name": "things", "singularName": "thing", "kind": "Thing", "namespaced": true, "verbs": []string{"create", "delete", "get", "list"}}}}
	case len(path) >= 6 && path[5] == "things":
		if namespace = path[4]; len(path) == 7 {
			name = path[6]
		}
	case len(path) != 4 || path[3] != "things":
		return http.StatusNotFound, nil
	}
	switch {
	case r.Method == http.MethodPost:
		return a.createObject(r, namespace)
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, nil
	case name == "":
		return http.StatusOK, a.listObjects(namespace)
	}
	if object, found := a.things[namespace+"/"+name]; found {
		return http.StatusOK, object
	}
	return http.StatusNotFound, nil
}

func (a *aggregatedAPI) forgetObject(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.things, key)
}

func (a *aggregatedAPI) createObject(r *http.Request, namespace string) (int, map[string]any) {
	object := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		return http.StatusBadRequest, nil
	}
	name := (&unstructured.Unstructured{Object: object}).GetName()
	if _, found := a.things[namespace+"/"+name]; found {
		return http.StatusConflict, nil
	}
	a.putObject(namespace, name, object, r.URL.Query().Get("fieldManager"))
	return http.StatusCreated, object
}

func (a *aggregatedAPI) listObjects(namespace string) map[string]any {
	items := []any{}
	for key, object := range a.things {
		if namespace == "" || strings.HasPrefix(key, namespace+"/") {
			items = append(items, object)
		}
	}
	return map[string]any{"kind": "ThingList", "apiVersion": apiGroup + "/v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": items}
}

func (a *aggregatedAPI) apiService() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": apiGroup, "version": "v1", "insecureSkipTLSVerify": true, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
		"service": map[string]any{"namespace": served, "name": "api", "port": int64(a.port)},
	}}}
	o.SetAPIVersion("apiregistration.k8s.io/v1")
	o.SetKind("APIService")
	o.SetName("v1." + apiGroup)
	o.SetLabels(apiLabels)
	return o
}

// plantServed makes the Service that leads to this process.
func (a *apiClient) plantServed(ctx context.Context) error {
	return a.createObject(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: served, Name: "api"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
	}})
}

// prepareAggregated backs up an APIService with an object that it serves, and removes it.
func prepareAggregated(ctx context.Context, b *Bed, name string) (err error) {
	if b.api, err = serveAggregated(ctx); err != nil {
		return err
	}
	if err := b.apiClient.createObject(ctx, b.api.apiService()); err != nil {
		return err
	}
	things := &unstructured.UnstructuredList{}
	things.SetAPIVersion(apiGroup + "/v1")
	things.SetKind("ThingList")
	if err := pollUntil(ctx, patience, "things are served", func() (bool, error) { return b.client.List(ctx, things) == nil, nil }); err != nil {
		return err
	}
	if err := b.apiClient.createObject(ctx, &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{
		IncludedNamespaces: []string{served}, IncludeClusterResources: new(true), LabelSelector: &metav1.LabelSelector{MatchLabels: apiLabels},
	}}); err != nil {
		return err
	}
	backup, err := b.apiClient.awaitEnded(ctx, name)
	if err != nil {
		return err
	}
	if p := backup.Status.Progress; backup.Status.Phase != velerov1.BackupPhaseCompleted || p.ItemsBackedUp < 2 {
		return fmt.Errorf("backup %s is %s with %d items", name, backup.Status.Phase, p.ItemsBackedUp)
	}
	b.api.up.Store(false)
	b.api.forgetObject(served + "/thing")
	return b.apiClient.removeObject(ctx, b.api.apiService())
}

// beginAggregated restores, and serves the API once the restore waits for it.
func beginAggregated(ctx context.Context, b *Bed, name string) error {
	err := b.awaitPoint(ctx, delayed, func() error {
		return b.apiClient.createObject(ctx, &velerov1.Restore{ObjectMeta: namedMeta(name), Spec: velerov1.RestoreSpec{
			BackupName: name, NamespaceMapping: map[string]string{served: name}, IncludeClusterResources: new(true),
		}})
	})
	b.api.up.Store(true)
	return err
}

// tidyAggregated removes the API before the namespace, whose removal would wait for its answers.
func tidyAggregated(ctx context.Context, b *Bed, name string) error {
	o := b.api.apiService()
	err := b.apiClient.removeObject(ctx, o)
	if err == nil {
		err = pollUntil(ctx, patience, "the APIService is gone", func() (bool, error) {
			err := b.client.Get(ctx, client.ObjectKeyFromObject(o), o)
			return err != nil, client.IgnoreNotFound(err)
		})
	}
	return errors.Join(err, b.api.close(), removeNamespace(ctx, b, name))
}
