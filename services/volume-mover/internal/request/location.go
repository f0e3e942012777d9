package request

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

// OpenLocation opens the location of a file of manifests. A mover asks no API server, so it needs no
// rights there.
func OpenLocation(ctx context.Context, path string) (objectstore.Store, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	objects, err := decodeManifests(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var found *velerov1.BackupStorageLocation
	for _, o := range objects {
		if loc, ok := o.(*velerov1.BackupStorageLocation); ok && found != nil {
			return nil, fmt.Errorf("%s: a second BackupStorageLocation, %q", path, loc.Name)
		} else if ok {
			found = loc
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s: there is no BackupStorageLocation", path)
	}
	return location.New(objects, found.Namespace).Open(ctx, found)
}

// manifestReader is the objects of a file, as a client.Reader that finds them by kind and name.
type manifestReader []client.Object

func decodeManifests(r io.Reader) (manifestReader, error) {
	var found manifestReader
	decoder := serializer.NewCodecFactory(kube.Scheme(), serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		decoded, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, err
		}
		object, ok := decoded.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no single object", decoded)
		}
		if secret, ok := object.(*corev1.Secret); ok {
			mergeText(secret)
		}
		found = append(found, object)
	}
}

// mergeText does what the API server does with stringData.
func mergeText(s *corev1.Secret) {
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
}

// Get implements client.Reader.
func (m manifestReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range m {
		if o.GetName() == key.Name && reflect.TypeOf(o) == reflect.TypeOf(into) {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

// List implements client.Reader; nothing here lists.
func (m manifestReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("files of manifests cannot be listed")
}
