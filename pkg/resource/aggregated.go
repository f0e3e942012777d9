package resource

import (
	"context"
	"encoding/json"
	"io"

	"k8s.io/client-go/rest"
)

// boundBody releases the context of a request once its body is closed.
type boundBody struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b *boundBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// apiServiceList is the part of apiregistration.k8s.io/v1 APIServiceList that
// tells which group versions another server answers.
type apiServiceList struct {
	Items []struct {
		Spec struct {
			Group   string           `json:"group"`
			Version string           `json:"version"`
			Service *json.RawMessage `json:"service"`
		} `json:"spec"`
	} `json:"items"`
}

// aggregatedGroups returns the group versions that are proxied to another
// server. A server without the aggregation layer, or one that hides it, yields
// none: callers must cope with a revision that does not fit anyway.
func aggregatedGroups(ctx context.Context, client rest.Interface) map[string]bool {
	out := map[string]bool{}
	body, err := client.Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return out
	}
	var list apiServiceList
	if err := json.Unmarshal(body, &list); err != nil {
		return out
	}
	for _, item := range list.Items {
		if item.Spec.Service != nil {
			out[item.Spec.Group+"/"+item.Spec.Version] = true
		}
	}
	return out
}
