package backup

import (
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// ItemList is what -o prints of items, in the form of a list of kubectl's.
type ItemList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Item `json:"items"`
}

// Item is an object of a backup without its content: its metadata, and how it is stored.
type Item struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Stored            Stored `json:"stored"`
}

// Stored is what a backup knows about an object.
type Stored struct {
	// Path in the tarball.
	Path string `json:"path"`
	// Size of the object as JSON in bytes, and its SHA-256 in hex.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// ContentHash is a hash over what a restore would compare, in hex: it stays when the status alone changes.
	ContentHash string `json:"contentHash,omitempty"`
	// References are the objects that its content names.
	References []Reference `json:"references,omitempty"`
	// Actions are the backup item actions that handled it.
	Actions []string `json:"actions,omitempty"`
	// Live: it was read on its own, after the cut of the backup.
	Live bool `json:"live,omitempty"`
}

// Reference is an object that another one names.
type Reference struct {
	Relation  string `json:"relation"`
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func newItemList() *ItemList {
	return &ItemList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []Item{}}
}

func newItem(i *manifestv1.Item) Item {
	item := Item{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersionOf(i), Kind: i.GetKind()},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.GetNamespace(), Name: i.GetName(), UID: types.UID(i.GetUid()), ResourceVersion: i.GetResourceVersion(),
			Labels: i.GetLabels(), Annotations: i.GetAnnotations(),
		},
		Stored: Stored{Path: i.GetPath(), Size: i.GetSize(), SHA256: hex.EncodeToString(i.GetSha256()), ContentHash: hex.EncodeToString(i.GetContentHash()), Actions: i.GetActions(), Live: i.GetLive()},
	}
	for _, o := range i.GetOwners() {
		owner := metav1.OwnerReference{APIVersion: o.GetApiVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: types.UID(o.GetUid())}
		if controller := o.GetController(); controller {
			owner.Controller = &controller
		}
		item.OwnerReferences = append(item.OwnerReferences, owner)
	}
	for _, r := range i.GetReferences() {
		item.Stored.References = append(item.Stored.References, Reference{
			Relation: r.GetRelation(), Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName(),
		})
	}
	return item
}

// DeepCopyObject implements runtime.Object for printers, which change nothing.
func (l *ItemList) DeepCopyObject() runtime.Object { return l }

// DeepCopyObject implements runtime.Object for printers, which change nothing.
func (i *Item) DeepCopyObject() runtime.Object { return i }
