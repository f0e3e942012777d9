package kube

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// Scheme returns a new scheme with every typed kind the services use: the built-in API groups (core
// and coordination among them), custom resource definitions, CSI snapshots and both versions of
// velero.io.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Registration fails only if two types claim one kind, which every test of this package would
	// show.
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(snapshotv1.AddToScheme(s))
	utilruntime.Must(velerov1.AddToScheme(s))
	utilruntime.Must(v2alpha1.AddToScheme(s))
	return s
}
