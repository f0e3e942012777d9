package plan

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// Source lists the items of a backup, in any order and as often as asked. An error ends the
// listing.
type Source interface {
	Items(ctx context.Context) iter.Seq2[manifest.Item, error]
}

// Survey is what has to be known about a backup before its items can be selected.
type Survey struct {
	// Namespaces are the names that objects of the backup live in, sorted.
	Namespaces []string
	// Volumes are the PersistentVolumes of the backup.
	Volumes []manifest.Item
	// Snapshots are the VolumeSnapshots of the backup and their contents, regardless of the filters.
	Snapshots *Snapshots
	// Objects is how many items the backup lists.
	Objects int
	kinds   map[schema.GroupResource]surveyed
}

type surveyed struct {
	kind       string
	namespaced bool
	objects    int
}

const (
	namespacesResource = "namespaces"
	volumesResource    = "persistentvolumes"
	claimsResource     = "persistentvolumeclaims"
	servicesResource   = "services"
	quotasResource     = "resourcequotas"

	clusterRoleBindingsResource = "clusterrolebindings.rbac.authorization.k8s.io"
	clusterRolesResource        = "clusterroles.rbac.authorization.k8s.io"
	roleBindingsResource        = "rolebindings.rbac.authorization.k8s.io"
	rolesResource               = "roles.rbac.authorization.k8s.io"

	definitionsResource = "customresourcedefinitions.apiextensions.k8s.io"
)

// ReadSurvey reads the listing of a backup once.
func ReadSurvey(ctx context.Context, source Source) (*Survey, error) {
	s := &Survey{kinds: map[schema.GroupResource]surveyed{}, Snapshots: newSnapshots()}
	seen := map[string]struct{}{}
	for item, err := range source.Items(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the items of the backup: %w", err)
		}
		s.Objects++
		gr := schema.GroupResource{Group: item.Group, Resource: item.Resource}
		known, ok := s.kinds[gr]
		if !ok {
			known = surveyed{kind: strings.ToLower(item.Kind), namespaced: item.Namespace != ""}
		}
		if item.Preferred {
			known.objects++
		}
		s.kinds[gr] = known
		s.Snapshots.takeItem(&item, gr)
		namespace := item.Namespace
		switch gr.String() {
		case namespacesResource:
			namespace = item.Name
		case volumesResource:
			if item.Preferred {
				s.Volumes = append(s.Volumes, item)
			}
		}
		if _, ok := seen[namespace]; !ok && namespace != "" {
			seen[strings.Clone(namespace)] = struct{}{}
		}
	}
	for name := range seen {
		s.Namespaces = append(s.Namespaces, name)
	}
	slices.Sort(s.Namespaces)
	return s, nil
}

// Resolver finds the resource a name of an include or exclude list means.
type Resolver interface {
	Resolve(name string) (gr schema.GroupResource, namespaced, ok bool)
}

// Resolver resolves names as cluster does and, for kinds the cluster does not serve yet because the
// restore brings their definitions, by the kinds of the backup.
func (s *Survey) Resolver(cluster Resolver) Resolver {
	return &surveyResolver{survey: s, cluster: cluster}
}

type surveyResolver struct {
	survey  *Survey
	cluster Resolver
}

// Resolve implements Resolver.
func (r *surveyResolver) Resolve(name string) (schema.GroupResource, bool, bool) {
	if gr, namespaced, ok := r.cluster.Resolve(name); ok {
		return gr, namespaced, true
	}
	name = strings.ToLower(name)
	plain, group, hasGroup := strings.Cut(name, ".")
	var found []schema.GroupResource
	for gr, k := range r.survey.kinds {
		if (gr.Resource == plain || k.kind == plain) && (!hasGroup || gr.Group == group) {
			found = append(found, gr)
		}
	}
	if len(found) == 0 {
		return schema.GroupResource{}, false, false
	}
	gr := slices.MinFunc(found, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return gr, r.survey.kinds[gr].namespaced, true
}

// Any reports whether the backup has objects of a resource for which match is true.
func (s *Survey) Any(match func(gr schema.GroupResource) bool) bool {
	for gr := range s.kinds {
		if match(gr) {
			return true
		}
	}
	return false
}

// LeftOut counts the objects of the backup that a plan does not select, by resource.
func (s *Survey) LeftOut(p *Plan) map[string]int64 {
	out := map[string]int64{}
	for gr, known := range s.kinds {
		out[gr.String()] = int64(known.objects)
	}
	for i := range int32(p.Len()) {
		if !p.Reserve(i) {
			out[p.Kind(i).String()]--
		}
	}
	maps.DeleteFunc(out, func(_ string, n int64) bool { return n <= 0 })
	return out
}

// Empty reports whether the backup lists nothing at all.
func (s *Survey) Empty() bool { return len(s.kinds) == 0 }
