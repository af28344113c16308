// Evaluates deploy/floor/floor.yaml with the API server's own packages, without an API server.
//
//	floor POLICY < CASES > RESULTS
//
// POLICY is the MutatingAdmissionPolicy as JSON. Each line of CASES is {"pod", "namespace", "params"}, each of RESULTS is
// {"pod"} with what the policy has made of the pod, or {"error"} as failurePolicy sees it: then the pod is left alone.
// "matched" says whether the match conditions let the policy be evaluated at all.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

var (
	kind     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

type testCase struct {
	Pod       *core.Pod       `json:"pod"`
	Namespace *core.Namespace `json:"namespace"`
	Params    *core.ConfigMap `json:"params"`
}

type result struct {
	Pod     *core.Pod `json:"pod,omitempty"`
	Error   string    `json:"error,omitempty"`
	Matched bool      `json:"matched"`
	Micros  int64     `json:"micros"`
}

// As compilePolicy of k8s.io/apiserver/pkg/admission/plugin/policy/mutating, which is not exported.
type policy struct {
	compiler *plugincel.CompositedCompiler
	matcher  matchconditions.Matcher
	patchers []patch.Patcher
	objects  admission.ObjectInterfaces
}

func compile(source *admissionregistration.MutatingAdmissionPolicy) (*policy, error) {
	// Expressions that are new are compiled so: with what the previous version knows, too.
	mode := environment.NewExpressions
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	variables := []plugincel.NamedExpressionAccessor{}
	for _, each := range source.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: each.Name, Expression: each.Expression})
	}
	compiler.CompileAndStoreVariables(variables, options, mode)
	conditions := []plugincel.ExpressionAccessor{}
	for index := range source.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&source.Spec.MatchConditions[index]))
	}
	evaluator := compiler.CompileCondition(conditions, options, mode)
	scheme := runtime.NewScheme()
	if err := core.AddToScheme(scheme); err != nil {
		return nil, err
	}
	compiled := &policy{
		compiler: compiler,
		matcher:  matchconditions.NewMatcher(evaluator, source.Spec.FailurePolicy, "policy", "validate", source.Name),
		objects:  admission.NewObjectInterfacesFromScheme(scheme),
	}
	options.HasPatchTypes = true
	for _, each := range source.Spec.Mutations {
		mutating := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: each.JSONPatch.Expression}, options, mode)
		for _, err := range mutating.CompilationErrors() {
			return nil, err
		}
		compiled.patchers = append(compiled.patchers, patch.NewJSONPatcher(mutating))
	}
	return compiled, nil
}

func (p *policy) mutate(given testCase) (pod *core.Pod, isMatched bool, err error) {
	ctx := p.compiler.CreateContext(context.Background())
	attributes := admission.NewAttributesRecord(given.Pod, nil, kind, given.Namespace.Name, given.Pod.Name, resource,
		"", admission.Create, &meta.CreateOptions{}, false, nil)
	versioned := versionedAttributes(attributes, given.Pod)
	matched := p.matcher.Match(ctx, versioned, given.Params, nil)
	if matched.Error != nil || !matched.Matches {
		return given.Pod, false, matched.Error
	}
	patched := runtime.Object(given.Pod)
	for _, patcher := range p.patchers {
		request := patch.Request{
			MatchedResource:     resource,
			VersionedAttributes: versioned,
			ObjectInterfaces:    p.objects,
			OptionalVariables:   plugincel.OptionalVariableBindings{VersionedParams: given.Params},
			Namespace:           given.Namespace,
		}
		patched, err = patcher.Patch(ctx, request, celconfig.RuntimeCELCostBudget)
		if err != nil {
			return nil, true, err
		}
	}
	return patched.(*core.Pod), true, nil
}

func run() error {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	source := &admissionregistration.MutatingAdmissionPolicy{}
	if err := json.Unmarshal(text, source); err != nil {
		return err
	}
	compiled, err := compile(source)
	if err != nil {
		return err
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	results := json.NewEncoder(output)
	cases := json.NewDecoder(lines)
	for cases.More() {
		given := testCase{}
		if err := cases.Decode(&given); err != nil {
			return err
		}
		begun := time.Now()
		pod, isMatched, err := compiled.mutate(given)
		outcome := result{Pod: pod, Matched: isMatched, Micros: time.Since(begun).Microseconds()}
		if err != nil {
			outcome = result{Error: err.Error(), Matched: isMatched}
		}
		if err := results.Encode(outcome); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
