package field

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// expectAll waits until each statement holds, and watches those that are to stay.
func (r *run) expectAll(statements []expectation) {
	r.t.Helper()
	for i := range statements {
		e := &statements[i]
		check := func(ctx context.Context) error { return r.checkStatement(ctx, e) }
		if e.Stays == "" {
			r.awaitCondition(fmt.Sprintf("statement %d", i+1), check)
			continue
		}
		span, err := time.ParseDuration(e.Stays)
		require.NoError(r.t, err, "stays")
		for end := time.Now().Add(span); time.Now().Before(end); r.pauseFor(site.Look) {
			require.NoError(r.t, check(r.t.Context()))
		}
	}
}

func (r *run) checkStatement(ctx context.Context, e *expectation) error {
	switch {
	case e.User != "":
		return r.checkRight(ctx, e)
	case e.File != "":
		return r.checkFile(ctx, e)
	case e.Pod != "":
		if ran := r.commands.listCommands(e.Pod); !slices.Equal(ran, e.Ran) {
			return fmt.Errorf("Pod %s ran %v instead of %v", e.Pod, ran, e.Ran)
		}
		return nil
	case e.Events != "":
		return r.checkEvents(ctx, e)
	case e.Before != "":
		return r.checkOrder(ctx, e)
	case e.List != "":
		return r.checkCount(ctx, e)
	case e.Absent:
		ref, err := r.resolveText(e.Object, false)
		if err != nil {
			return err
		}
		_, err = ref.resourceClient().Get(ctx, ref.name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s is there", e.Object)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	text, err := r.readValue(ctx, &value{Object: e.Object, Selector: e.Selector, Path: e.Path})
	switch {
	case err != nil:
		return err
	case e.Is != nil && text != *e.Is:
		return fmt.Errorf("%s of %s is %q instead of %q", e.Path, e.Object, text, *e.Is)
	case e.Not != nil && text == *e.Not:
		return fmt.Errorf("%s of %s is %q", e.Path, e.Object, text)
	case e.Matches != "" && !regexp.MustCompile(e.Matches).MatchString(text):
		return fmt.Errorf("%s of %s is %q, which %q does not match", e.Path, e.Object, text, e.Matches)
	}
	return nil
}

// readValue returns a field of a live object; without a path it returns nothing of an object that is there.
func (r *run) readValue(ctx context.Context, v *value) (string, error) {
	ref, err := r.resolveText(v.Object, v.Selector != "")
	if err != nil {
		return "", err
	}
	var content map[string]any
	if v.Selector != "" {
		list, err := ref.resourceClient().List(ctx, metav1.ListOptions{LabelSelector: v.Selector})
		if err != nil {
			return "", err
		}
		if len(list.Items) == 0 {
			return "", fmt.Errorf("no %s has %s", v.Object, v.Selector)
		}
		content = list.Items[0].Object
	} else {
		live, err := ref.resourceClient().Get(ctx, ref.name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("%s: %w", v.Object, err)
		}
		content = live.Object
	}
	if v.Path == "" {
		return "", nil
	}
	path := jsonpath.New("path").AllowMissingKeys(true)
	if err := path.Parse(v.Path); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = path.Execute(&out, content)
	return out.String(), err
}

func (r *run) checkCount(ctx context.Context, e *expectation) error {
	if e.Count == nil {
		return errors.New("a list without count")
	}
	ref, err := r.resolveText(e.List, true)
	if err != nil {
		return err
	}
	list, err := ref.resourceClient().List(ctx, metav1.ListOptions{LabelSelector: e.Selector})
	if err != nil {
		return err
	}
	if len(list.Items) != *e.Count {
		return fmt.Errorf("%d %s %s instead of %d", len(list.Items), e.List, e.Selector, *e.Count)
	}
	return nil
}

// checkOrder compares the resource versions of two lists of objects that nothing has changed since their creation.
func (r *run) checkOrder(ctx context.Context, e *expectation) error {
	first, err := r.listVersions(ctx, e.List)
	if err != nil {
		return err
	}
	second, err := r.listVersions(ctx, e.Before)
	if err != nil {
		return err
	}
	if last, next := slices.Max(first), slices.Min(second); last > next {
		return fmt.Errorf("one of %s has resource version %d, and one of %s has %d", e.List, last, e.Before, next)
	}
	return nil
}

// listVersions returns the resource versions of the objects of a list, which is not empty.
func (r *run) listVersions(ctx context.Context, text string) ([]uint64, error) {
	ref, err := r.resolveText(text, true)
	if err != nil {
		return nil, err
	}
	list, err := ref.resourceClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("there are no %s", text)
	}
	versions := make([]uint64, len(list.Items))
	for i := range list.Items {
		if versions[i], err = strconv.ParseUint(list.Items[i].GetResourceVersion(), 10, 64); err != nil {
			return nil, err
		}
	}
	return versions, nil
}

// checkRight asks what a user may do: "verb resource[.group] [namespace]".
func (r *run) checkRight(ctx context.Context, e *expectation) error {
	words := strings.Fields(e.Can)
	if len(words) < 2 {
		return fmt.Errorf("can: %q is no verb and resource", e.Can)
	}
	resource := schema.ParseGroupResource(words[1])
	attributes := &authorizationv1.ResourceAttributes{Verb: words[0], Group: resource.Group, Resource: resource.Resource}
	if len(words) > 2 {
		attributes.Namespace = words[2]
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: e.User, ResourceAttributes: attributes}}
	if account, ok := strings.CutPrefix(e.User, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		review.Spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	if err := r.Client.Create(ctx, review); err != nil {
		return err
	}
	if review.Status.Allowed != e.Allowed {
		return fmt.Errorf("%s %s: %t", e.User, e.Can, review.Status.Allowed)
	}
	return nil
}

func (r *run) checkEvents(ctx context.Context, e *expectation) error {
	ref, err := r.resolveText(e.Events, false)
	if err != nil {
		return err
	}
	events := &corev1.EventList{}
	if err := r.Client.List(ctx, events, client.InNamespace(ref.namespace)); err != nil {
		return err
	}
	var messages []string
	for i := range events.Items {
		if o := &events.Items[i].InvolvedObject; o.Name == ref.name && o.Kind == ref.kind.Kind {
			messages = append(messages, events.Items[i].Message)
		}
	}
	if !slices.ContainsFunc(messages, func(message string) bool { return strings.Contains(message, e.Contains) }) {
		return fmt.Errorf("no Event on %s says %q; there are %q", e.Events, e.Contains, messages)
	}
	return nil
}
