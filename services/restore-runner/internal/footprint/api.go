package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const readHeaderTimeout = 10 * time.Second

// nullServer is an API server that stores nothing: every creation succeeds, and no object is found.
type nullServer struct{ created atomic.Int64 }

func newAPI() *nullServer { return &nullServer{} }

// ServeHTTP implements http.Handler.
func (a *nullServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "api":
		writeReply(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
	case path == "apis":
		version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		writeReply(w, http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}})
	case path == "apis/"+group+"/v1":
		writeReply(w, http.StatusOK, metav1.APIResourceList{GroupVersion: group + "/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: verbs},
		}})
	case path == "api/v1":
		writeReply(w, http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", Kind: "Namespace", Verbs: verbs}, {Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs},
		}})
	case r.Method == http.MethodPost:
		a.answerCreate(w)
	case r.Method == http.MethodPatch:
		writeReply(w, http.StatusOK, metav1.PartialObjectMetadata{})
	default:
		writeReply(w, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	}
}

var verbs = metav1.Verbs{"create", "get", "list", "patch"}

// answerCreate answers with the fields that the client reads.
func (a *nullServer) answerCreate(w http.ResponseWriter) {
	id := strconv.FormatInt(a.created.Add(1), 10)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"` + id + `","resourceVersion":"` + id + `"}}`))
}

func writeReply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
