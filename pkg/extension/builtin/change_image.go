package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// changeImage changes the images of containers, so that a restore can do with another registry.
// Each value of the ConfigMap is a rule "old,new". A value of another form is left out, as in Velero.
type changeImage struct{ configured[imageRules] }

// imageRules are in the order they are tried: the longest old part first, because it is the most
// specific.
type imageRules struct {
	rules   []imageRule
	remarks []string // about values that are left out
}

type imageRule struct{ key, old, new string }

// errAmbiguous means that a rule matches more than one part of an image.
var errAmbiguous = errors.New("the old part occurs more than once")

func newChangeImage(target Target) changeImage {
	n := named{"velero.io/change-image-name", []string{"pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps",
		"replicasets.apps", "replicationcontrollers", "jobs.batch", "cronjobs.batch"}}
	return changeImage{newConfigured(n, target, parseImageRules)}
}

func parseImageRules(c Config) (imageRules, error) {
	var parsed imageRules
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		value := c.Data[key]
		from, to, ok := strings.Cut(value, ",")
		rule := imageRule{key, strings.TrimSpace(from), strings.TrimSpace(to)}
		if !ok || rule.old == "" || strings.Contains(rule.new, ",") {
			parsed.remarks = append(parsed.remarks, fmt.Sprintf(`action velero.io/change-image-name: ConfigMap %s: data[%s]: %q is ignored: "old,new" expected`, c.Name, key, value))
			continue
		}
		parsed.rules = append(parsed.rules, rule)
	}
	slices.SortFunc(parsed.rules, func(a, b imageRule) int {
		return cmp.Or(cmp.Compare(len(b.old), len(a.old)), cmp.Compare(a.key, b.key))
	})
	return parsed, nil
}

// Remarks implements action.Remarker.
func (a changeImage) Remarks(ctx context.Context) []string {
	rules, _, err := a.currentConfig(ctx)
	if err != nil {
		return nil // an error of each object
	}
	return rules.remarks
}

func (a changeImage) Execute(ctx context.Context, o, _ *action.Object, _ *action.Restore) (_ action.RestoreResult, err error) {
	defer a.guardPanic(execute, &err)
	rules, found, err := a.currentConfig(ctx)
	if err != nil || !found {
		return action.RestoreResult{Object: o}, err
	}
	changed, err := o.Copy()
	if err != nil {
		return action.RestoreResult{}, err
	}
	renamed, err := rules.applyToPod(changed.Object, podSpecOf(changed.GetKind()))
	if err != nil || !renamed {
		return action.RestoreResult{Object: o}, err
	}
	return action.RestoreResult{Object: action.FromContent(changed.Object)}, nil
}

// podSpecOf returns where a kind has the description of its Pods.
func podSpecOf(kind string) []string {
	switch kind {
	case "Pod":
		return []string{"spec"}
	case "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}
	default:
		return []string{"spec", "template", "spec"}
	}
}

// applyToPod changes the images of the containers and reports whether any did.
func (r imageRules) applyToPod(o object, podSpec []string) (changed bool, err error) {
	for _, list := range []string{"initContainers", "containers"} {
		err := eachObject(o, func(container object) error {
			image, ok, err := textAt(container, "image")
			if err != nil || !ok {
				return err
			}
			renamed, err := r.renameImage(image)
			if err != nil {
				return fmt.Errorf("image: %w", err)
			}
			if renamed != image {
				container["image"], changed = renamed, true
			}
			return nil
		}, append(slices.Clone(podSpec), list)...)
		if err != nil {
			return false, err
		}
	}
	return changed, nil
}

// renameImage returns the image after the first rule whose old part it has.
func (r imageRules) renameImage(image string) (string, error) {
	for _, rule := range r.rules {
		switch strings.Count(image, rule.old) {
		case 0:
		case 1:
			return strings.Replace(image, rule.old, rule.new, 1), nil
		default:
			return "", fmt.Errorf("%w: rule data[%s] on %q", errAmbiguous, rule.key, image)
		}
	}
	return image, nil
}
