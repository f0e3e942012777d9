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

// token is what a continue token holds. A negative revision continues at the newest one.
type token struct {
	Revision int64
	After    string
}

// list answers a list request: pages come in order of keys, revisions are answered as asked, tokens
// of compacted revisions get a 410 with a token to go on behind the last key, and revisions to come
// are too large. It reports whether the answer was a 410.
func (c *call) list() (expired bool) {
	k, now := c.kind, c.storage.revision
	if k.Own != 0 {
		now = k.Own
	}
	at, err := position(c.r, now)
	switch {
	case k.Dead:
		fail(c.w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "conversion webhook failed")
	case k.Narrow && c.namespace == "":
		fail(c.w, http.StatusForbidden, metav1.StatusReasonForbidden, "not at the cluster scope")
	case err != nil:
		fail(c.w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	case at.Revision > now:
		reply(c.w, http.StatusGatewayTimeout, tooLarge())
	case k.Own == 0 && at.Revision < c.storage.compacted:
		c.expired(at)
		return true
	default:
		c.page(at)
	}
	return false
}

// position is the revision and the key that a list begins behind.
func position(r *http.Request, now int64) (token, error) {
	at := token{Revision: now}
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

func (c *call) expired(at token) {
	st := failure(http.StatusGone, metav1.StatusReasonExpired, "the revision was compacted")
	if at.After != "" {
		st.Continue = encode(token{Revision: -1, After: at.After})
	}
	reply(c.w, http.StatusGone, st)
}

func (c *call) page(at token) {
	w, k := c.w, c.kind
	selected, err := selection(c.r, c.namespace)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	limit, _ := strconv.Atoi(c.r.URL.Query().Get("limit"))
	var items []string
	next, last := "", ""
	for _, stored := range c.storage.records(k) {
		object := stored.at(at.Revision)
		if object == nil || (at.After != "" && stored.key() <= at.After) || !selected(stored, object) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = encode(token{Revision: at.Revision, After: last})
			break
		}
		items, last = append(items, encode(k.item(object))), stored.key()
	}
	meta := fmt.Sprintf(`"metadata":{"resourceVersion":"%d","continue":%q}`, at.Revision, next)
	list := `"items":[` + strings.Join(items, ",") + `]`
	if k.Custom {
		meta, list = list, meta
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,%s,%s}`, k.Kind+"List", k.groupVersion(), meta, list)
}

// selection is which objects a list request selects.
func selection(r *http.Request, namespace string) (func(*record, map[string]any) bool, error) {
	q := r.URL.Query()
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return func(r *record, object map[string]any) bool {
		return (namespace == "" || r.namespace == namespace) && (!byName || r.name == name) && selector.Matches(labelsOf(object))
	}, nil
}

func labelsOf(object map[string]any) labels.Set {
	out := labels.Set{}
	all, _ := Meta(object)["labels"].(map[string]any)
	for key, value := range all {
		out[key] = text(value)
	}
	return out
}

// item is an object as an entry of a list: without its type, but for custom resources.
func (k *Kind) item(object map[string]any) map[string]any {
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
	st := failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version")
	st.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1}
	return st
}
