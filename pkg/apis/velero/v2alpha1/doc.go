// Package v2alpha1 holds the Go types of velero.io/v2alpha1, the data mover's requests,
// wire-compatible with Velero 1.18.
//
// +kubebuilder:object:generate=true
// +groupName=velero.io
package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: "velero.io", Version: "v2alpha1"}

// SchemeBuilder collects the registration of this package's kinds.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers every kind of this package, with its list, in a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DataUpload{}, &DataUploadList{},
		&DataDownload{}, &DataDownloadList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
