// Package location opens and checks BackupStorageLocations: it turns a location's spec, with the
// Secrets it names, into an object store rooted at the location's prefix.
//
// What a spec asks for and Holdfast does not do is an error naming the field, never ignored.
package location

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/s3store"
)

// ErrNoDefault means that no location has spec.default set.
var ErrNoDefault = errors.New("no BackupStorageLocation is the default")

// probePrefix holds the objects a validation writes and removes.
const probePrefix = layout.MetadataDir + "holdfast/probe/"

// providerPrefix is put before provider names without a slash (Velero's rule).
const providerPrefix = "velero.io/"

// providerAWS serves any S3.
const providerAWS = providerPrefix + "aws"

// Opener opens locations of one namespace. It is safe for concurrent use; one per process suffices.
type Opener struct {
	reader    client.Reader
	namespace string
	plugins   *plugins
	see       objectstore.Observer // nil sees nothing
	clock     clock.PassiveClock   // of what see gets

	mu         sync.Mutex
	conditions map[locationRevision]*s3store.Condition
}

// locationRevision is one state of one location's spec. The generation would not do: without a status
// subresource every write of the status raises it.
type locationRevision struct {
	uid  types.UID
	spec [sha256.Size]byte
}

// Option changes how an Opener works.
type Option func(*Opener)

// New returns an Opener that reads locations and Secrets through r.
func New(r client.Reader, namespace string, options ...Option) *Opener {
	o := &Opener{reader: r, namespace: namespace, conditions: map[locationRevision]*s3store.Condition{}}
	for _, option := range options {
		option(o)
	}
	return o
}

// Get reads a location; an absent one satisfies apierrors.IsNotFound.
func (o *Opener) Get(ctx context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	loc := &velerov1.BackupStorageLocation{}
	if err := o.reader.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: name}, loc); err != nil {
		return nil, fmt.Errorf("backup storage location %q: %w", name, err)
	}
	return loc, nil
}

// Default reads the location that is the default, see ChosenDefault. None is ErrNoDefault.
func (o *Opener) Default(ctx context.Context) (*velerov1.BackupStorageLocation, error) {
	var list velerov1.BackupStorageLocationList
	if err := o.reader.List(ctx, &list, client.InNamespace(o.namespace)); err != nil {
		return nil, fmt.Errorf("list backup storage locations: %w", err)
	}
	if loc := ChosenDefault(list.Items); loc != nil {
		return loc, nil
	}
	return nil, fmt.Errorf("%w in namespace %q", ErrNoDefault, o.namespace)
}

// Open returns the location's store; keys are relative to its root, and writes fail with
// ErrReadOnly where its access mode is ReadOnly, but for those of the files of restores (Velero 1.18). The caller closes it. It asks the server nothing
// unless it must: a missing bucket shows on first use. Errors name the field of the location.
func (o *Opener) Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	store, err := o.openStore(ctx, loc)
	if err != nil {
		return nil, fmt.Errorf("backup storage location %q: %w", loc.Name, err)
	}
	return store, nil
}

// OpenName is Get and Open.
func (o *Opener) OpenName(ctx context.Context, name string) (objectstore.Store, error) {
	loc, err := o.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return o.Open(ctx, loc)
}

func (o *Opener) openStore(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	place, err := readBucketPlace(loc)
	if err != nil {
		return nil, err
	}
	bucket, err := o.openBucket(ctx, loc, place)
	if err != nil {
		return nil, err
	}
	if o.see != nil {
		bucket = objectstore.Observed(bucket, o.clock, o.see)
	}
	store, err := objectstore.WithPrefix(bucket, place.prefix)
	if err != nil {
		return nil, errors.Join(errgrpc.Field("spec.objectStorage.prefix", "%v", err), bucket.Close())
	}
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		store = objectstore.ReadOnly(store, layout.RestoresDir)
	}
	return objectstore.Traced(store, loc.Name), nil
}

func (o *Opener) openBucket(ctx context.Context, loc *velerov1.BackupStorageLocation, p bucketPlace) (objectstore.Store, error) {
	switch v := loc.Annotations[holdfast.AnnotationObjectStore]; v {
	case "":
	case byPlugin:
		return o.openPlugin(ctx, loc, p)
	default:
		return nil, errgrpc.Field("metadata.annotations["+holdfast.AnnotationObjectStore+"]", "must be %q or not there, is %q", byPlugin, v)
	}
	switch Provider(loc) {
	case holdfast.ProviderFile:
		return openFile(loc, p)
	case providerAWS:
		return o.openS3(ctx, loc, p)
	case providerPrefix:
		return nil, errgrpc.Field("spec.provider", "is required")
	default:
		return o.openPlugin(ctx, loc, p)
	}
}

// Provider is the location's provider with its prefix.
func Provider(loc *velerov1.BackupStorageLocation) string {
	if strings.Contains(loc.Spec.Provider, "/") {
		return loc.Spec.Provider
	}
	return providerPrefix + loc.Spec.Provider
}

// bucketPlace is the prefix of a location in a bucket.
type bucketPlace struct{ bucket, prefix string }

// readBucketPlace applies Velero's rules: slashes around bucket and prefix do not matter, the bucket holds
// none.
func readBucketPlace(loc *velerov1.BackupStorageLocation) (bucketPlace, error) {
	spec := loc.Spec.ObjectStorage
	if spec == nil {
		return bucketPlace{}, errgrpc.Field("spec.objectStorage", "is required")
	}
	p := bucketPlace{bucket: strings.Trim(spec.Bucket, "/"), prefix: strings.Trim(spec.Prefix, "/")}
	if p.bucket == "" || p.bucket == "." || p.bucket == ".." || strings.Contains(p.bucket, "/") {
		return bucketPlace{}, errgrpc.Field("spec.objectStorage.bucket", "%q is not a bucket name; a path belongs into prefix", spec.Bucket)
	}
	switch mode := loc.Spec.AccessMode; mode {
	case "", velerov1.LocationModeReadOnly, velerov1.LocationModeReadWrite:
	default:
		return bucketPlace{}, errgrpc.Field("spec.accessMode", "%q is neither ReadWrite nor ReadOnly", mode)
	}
	if p.prefix != "" {
		p.prefix += "/"
	}
	return p, nil
}
