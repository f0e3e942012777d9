package resource

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"k8s.io/client-go/rest"
)

// errTooLong means that a server sent more than a discovery document can have.
var errTooLong = errors.New("the discovery document is too long")

// boundBody ends a body that is too long, and releases the context of a request once its body is
// closed.
type boundBody struct {
	io.ReadCloser
	left    int64
	release func()
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// apiServiceList is the part of apiregistration.k8s.io/v1 APIServiceList that has which server
// answers for a group version.
type apiServiceList struct {
	Items []struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Group   string           `json:"group"`
			Version string           `json:"version"`
			Service *json.RawMessage `json:"service"`
		} `json:"spec"`
	} `json:"items"`
}

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// The label by which an API server marks the APIServices it keeps itself: those of its own groups
// at start only, those of custom resources all the time (k8s.io/kube-aggregator, autoregister).
const (
	autoRegistered = "kube-aggregator.kubernetes.io/automanaged"
	continuously   = "true"
)

// serverOrigin is who answers for a group version.
type serverOrigin int

const (
	itself serverOrigin = iota
	another
	definitions // the server itself, out of CustomResourceDefinitions
)

// apiServiceOrigins returns the origin of each group version that the server does not serve by its own code.
// A server without the aggregation layer, or one that hides it, yields none: callers must cope with
// a revision that does not fit anyway, and custom resources are then not distinguished from others.
func apiServiceOrigins(ctx context.Context, client rest.Interface) map[string]serverOrigin {
	out := map[string]serverOrigin{}
	body, err := client.Get().AbsPath(apiServices).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return out
	}
	var list apiServiceList
	if err := json.Unmarshal(body, &list); err != nil {
		return out
	}
	for i := range list.Items {
		item := &list.Items[i]
		switch name := item.Spec.Group + "/" + item.Spec.Version; {
		case item.Spec.Service != nil:
			out[name] = another
		case item.Metadata.Labels[autoRegistered] == continuously:
			out[name] = definitions
		}
	}
	return out
}
