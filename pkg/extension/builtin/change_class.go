package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var storageClasses = schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}

// betaClass is the annotation that came before spec.storageClassName and still counts where it is
// set.
const betaClass = "volume.beta.kubernetes.io/storage-class"

// changeClass gives volumes, claims and the claim templates of StatefulSets another StorageClass.
// The ConfigMap's keys are the classes of the backup, its values those of the cluster that is
// restored to.
type changeClass struct {
	configured[map[string]string]
	target Target
	known  *sync.Map // names of classes that exist
}

func newChangeClass(target Target) changeClass {
	n := named{"velero.io/change-storage-class", []string{"persistentvolumes", "persistentvolumeclaims", "statefulsets.apps"}}
	return changeClass{newConfigured(n, target, parseClasses), target, &sync.Map{}}
}

func parseClasses(c Config) (map[string]string, error) {
	classes := make(map[string]string, len(c.Data))
	for from, to := range c.Data {
		if to = strings.TrimSpace(to); to == "" {
			return nil, fmt.Errorf("data[%s]: the name of a StorageClass is missing", from)
		}
		classes[from] = to
	}
	return classes, nil
}

func (a changeClass) Execute(ctx context.Context, o, _ *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	classes, found, err := a.currentConfig(ctx)
	if err != nil || !found {
		return action.RestoreResult{Object: o}, err
	}
	changed, err := o.Copy()
	if err != nil {
		return action.RestoreResult{}, err
	}
	used, err := renameClasses(changed.Object, classes)
	if err != nil || len(used) == 0 {
		return action.RestoreResult{Object: o}, err
	}
	result := action.RestoreResult{Object: action.FromContent(changed.Object)}
	for _, class := range used {
		exists, err := a.classExists(ctx, class)
		if err != nil {
			return action.RestoreResult{}, err
		}
		if !exists { // perhaps the backup has it
			result.Additional = append(result.Additional, action.Item{GroupResource: storageClasses, Name: class})
		}
	}
	return result, nil
}

// classExists reports whether the class is in the cluster. That it is, is asked once.
func (a changeClass) classExists(ctx context.Context, class string) (bool, error) {
	if _, ok := a.known.Load(class); ok {
		return true, nil
	}
	exists, err := a.target.StorageClassExists(ctx, class)
	if err != nil {
		return false, fmt.Errorf("look for StorageClass %s: %w", class, err)
	}
	if exists {
		a.known.Store(class, nil)
	}
	return exists, nil
}

// renameClasses changes the classes of a volume or claim, or of a StatefulSet's templates, and
// returns the new ones.
func renameClasses(o object, classes map[string]string) ([]string, error) {
	var used []string
	rename := func(o object) error {
		class, err := renameClass(o, classes)
		if class != "" {
			used = append(used, class)
		}
		return err
	}
	err := errors.Join(rename(o), eachObject(o, rename, "spec", "volumeClaimTemplates"))
	return uniqueElements(used), err
}

// renameClass changes the class of one volume or claim and returns the new one, "" when it stays.
func renameClass(o object, classes map[string]string) (string, error) {
	renamed := ""
	for _, path := range [][]string{{"spec", "storageClassName"}, {"metadata", "annotations", betaClass}} {
		class, ok, err := textAt(o, path...)
		if err != nil {
			return "", err
		}
		to, mapped := classes[class]
		if !ok || !mapped || to == class {
			continue
		}
		parent, err := childObject(o, path[:len(path)-1]...)
		if err != nil {
			return "", err
		}
		parent[path[len(path)-1]] = to
		renamed = to
	}
	return renamed, nil
}
