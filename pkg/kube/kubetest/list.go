package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// listToken is what a continue token holds. A negative revision continues at the newest one.
type listToken struct {
	Revision int64
	After    string
}

// answerList answers a list request: pages come in order of keys, revisions are answered as asked, tokens
// of compacted revisions get a 410 with a token to go on behind the last key, and revisions to come
// are too large. It reports whether the answer was a 410.
func (c *apiCall) answerList() (expired bool) {
	k, now := c.kind, c.storage.revision
	if k.Own != 0 {
		now = k.Own
	}
	at, err := listPosition(c.r, now)
	switch {
	case k.Dead:
		writeFailure(c.w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "conversion webhook failed")
	case k.Narrow && c.namespace == "":
		writeFailure(c.w, http.StatusForbidden, metav1.StatusReasonForbidden, "not at the cluster scope")
	case err != nil:
		writeFailure(c.w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case at.Revision > now:
		writeReply(c.w, http.StatusGatewayTimeout, tooLarge())
	case k.Own == 0 && at.Revision < c.storage.compacted:
		c.answerExpired(at)
		return true
	default:
		c.answerPage(at)
	}
	return false
}

// listPosition is the revision and the key that a list begins behind.
func listPosition(r *http.Request, now int64) (listToken, error) {
	at := listToken{Revision: now}
	q := r.URL.Query()
	if c := q.Get("continue"); c != "" {
		if err := json.Unmarshal([]byte(c), &at); err != nil {
			return at, fmt.Errorf("continue: %w", err)
		}
		if at.Revision < 0 {
			at.Revision = now
		}
		return at, nil
	}
	if rv := q.Get("resourceVersion"); rv != "" && rv != "0" {
		revision, err := strconv.ParseInt(rv, 10, 64)
		if err != nil {
			return at, fmt.Errorf("resourceVersion: %w", err)
		}
		at.Revision = revision
	}
	return at, nil
}

func (c *apiCall) answerExpired(at listToken) {
	st := failureStatus(http.StatusGone, metav1.StatusReasonExpired, "the revision was compacted")
	if at.After != "" {
		st.Continue = encodeToken(listToken{Revision: -1, After: at.After})
	}
	writeReply(c.w, http.StatusGone, st)
}

func (c *apiCall) answerPage(at listToken) {
	w, k := c.w, c.kind
	selected, err := listSelection(c.r, c.namespace)
	if err != nil {
		writeFailure(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	limit, _ := strconv.Atoi(c.r.URL.Query().Get("limit"))
	metadata := strings.Contains(c.r.Header.Get("Accept"), "as=PartialObjectMetadataList")
	var items []string
	next, last := "", ""
	for _, stored := range c.storage.recordsOf(k) {
		object := stored.objectAt(at.Revision)
		if object == nil || (at.After != "" && stored.storageKey() <= at.After) || !selected(stored, object) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = encodeToken(listToken{Revision: at.Revision, After: last})
			break
		}
		if metadata {
			object = map[string]any{"metadata": object["metadata"], "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
		} else {
			object = k.listItem(object)
		}
		items, last = append(items, encodeToken(object)), stored.storageKey()
	}
	meta := fmt.Sprintf(`"metadata":{"resourceVersion":"%d","continue":%q}`, at.Revision, next)
	list := `"items":[` + strings.Join(items, ",") + `]`
	kind, version := k.Kind+"List", k.groupVersion()
	switch {
	case metadata:
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
	case k.Custom:
		meta, list = list, meta
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,%s,%s}`, kind, version, meta, list)
}

// listSelection is which objects a list request selects.
func listSelection(r *http.Request, namespace string) (func(*objectHistory, map[string]any) bool, error) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return func(r *objectHistory, object map[string]any) bool {
		return (namespace == "" || r.namespace == namespace) && (!byName || r.name == name) && selector.Matches(labelsOf(object))
	}, nil
}

func labelsOf(object map[string]any) labels.Set {
	out := labels.Set{}
	all, _ := Meta(object)["labels"].(map[string]any)
	for key, value := range all {
		out[key] = stringOf(value)
	}
	return out
}

// listItem is an object as an entry of a list: without its type, but for custom resources.
func (k *Kind) listItem(object map[string]any) map[string]any {
	object = maps.Clone(object)
	delete(object, "apiVersion")
	delete(object, "kind")
	if k.Custom {
		object["apiVersion"], object["kind"] = k.groupVersion(), k.Kind
	}
	return object
}

// tooLarge is the answer to a revision that the storage has not come to.
func tooLarge() metav1.Status {
	st := failureStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version")
	st.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1}
	return st
}
