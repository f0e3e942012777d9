package resource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// ErrNothingDiscovered is returned when the server answered with no group at all.
var ErrNothingDiscovered = errors.New("the cluster serves no API group")

// requestTimeout bounds one discovery request, as in Kubernetes' own clients.
const requestTimeout = 32 * time.Second

// Discover lists the resources that the cluster serves. Groups that do not answer are in
// Catalog.Failures; an error means that nothing was learnt.
func Discover(ctx context.Context, cfg *rest.Config) (*Catalog, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	bound := &http.Client{Transport: boundTransport{ctx: ctx, next: transport}, Timeout: requestTimeout}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, bound)
	if err != nil {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	groups, lists, err := client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return nil, fmt.Errorf("discover resources: %w", err)
	}
	if len(groups) == 0 {
		return nil, ErrNothingDiscovered
	}
	by := apiServiceOrigins(ctx, client.RESTClient())
	return newCatalog(preferredResources(groups, lists, by), groupFailures(failed)), nil
}

// boundTransport ends every request of a client that takes no context with ctx.
type boundTransport struct {
	ctx  context.Context //nolint:containedctx // the discovery client offers no other way to be cancelled
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t boundTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(t.ctx, func() { cancel(t.ctx.Err()) })
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		stop()
		cancel(nil)
		return nil, err
	}
	resp.Body = &boundBody{ReadCloser: resp.Body, left: bodyBytes(req.URL.Path), release: func() { stop(); cancel(nil) }}
	return resp, nil
}

// bodyBytes is how long an answer may be. The document of one group version may come from an
// aggregated server and takes up to sixty times its JSON once it is decoded; others the API server
// makes itself, of every group there is.
func bodyBytes(path string) int64 {
	if strings.HasSuffix(path, "/apis") || strings.HasSuffix(path, "/api") || strings.HasSuffix(path, apiServices) {
		return 32 << 20
	}
	return 1 << 20
}

func groupFailures(failed map[schema.GroupVersion]error) []GroupFailure {
	out := make([]GroupFailure, 0, len(failed))
	for gv, err := range failed {
		out = append(out, GroupFailure{GroupVersion: gv, Err: err})
	}
	slices.SortFunc(out, func(a, b GroupFailure) int {
		return cmp.Compare(a.GroupVersion.String(), b.GroupVersion.String())
	})
	return out
}

// preferredResources picks each resource once: at its group's preferred version, else at the first of the
// group's versions that serves it.
func preferredResources(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, by map[string]serverOrigin) []Resource {
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	var out []Resource
	for _, group := range groups {
		seen := map[string]bool{}
		for _, version := range versionOrder(group) {
			list := byVersion[version]
			if list == nil {
				continue
			}
			for i := range list.APIResources {
				r, ok := convertResource(list.GroupVersion, &list.APIResources[i])
				if !ok || seen[r.Name] {
					continue
				}
				seen[r.Name] = true
				answers := by[r.Kind.GroupVersion().String()]
				r.Aggregated, r.Custom = answers == another, answers == definitions
				r.PlainStatus = plainStatus(group, byVersion, r.Name)
				out = append(out, r)
			}
		}
	}
	orderResources(out)
	return out
}

// plainStatus returns the versions that serve a resource and no status subresource of it.
func plainStatus(group *metav1.APIGroup, byVersion map[string]*metav1.APIResourceList, name string) (versions []string) {
	for _, v := range group.Versions {
		list := byVersion[v.GroupVersion]
		if list == nil {
			continue
		}
		serves := func(path string) bool {
			return slices.ContainsFunc(list.APIResources, func(api metav1.APIResource) bool { return api.Name == path })
		}
		if serves(name) && !serves(name+"/status") {
			versions = append(versions, v.Version)
		}
	}
	return versions
}

// versionOrder returns the group versions with the preferred one first.
func versionOrder(group *metav1.APIGroup) []string {
	out := []string{group.PreferredVersion.GroupVersion}
	for _, v := range group.Versions {
		if v.GroupVersion != group.PreferredVersion.GroupVersion {
			out = append(out, v.GroupVersion)
		}
	}
	return out
}

// convertResource drops subresources and entries without a usable version.
func convertResource(groupVersion string, api *metav1.APIResource) (Resource, bool) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil || strings.Contains(api.Name, "/") || api.Kind == "" {
		return Resource{}, false
	}
	return Resource{
		Kind: gv.WithKind(api.Kind), Name: api.Name, Singular: api.SingularName,
		ShortNames: api.ShortNames, Namespaced: api.Namespaced, Verbs: api.Verbs,
	}, true
}
