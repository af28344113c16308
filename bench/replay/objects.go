package main

import "fmt"

// Everything that was recorded, made ready to be multiplied.
type templates struct {
	classes   []*class
	namespace template
	node      template
}

func readTemplates(recordings []string) (*templates, error) {
	made := &templates{}
	for _, path := range recordings {
		recording, err := readRecording(path)
		if err != nil {
			return nil, err
		}
		if recording.node == nil {
			class, err := newClass(path, recording)
			if err != nil {
				return nil, err
			}
			made.classes = append(made.classes, class)
		} else if err := made.addSurroundings(recording); err != nil {
			return nil, err
		}
	}
	if len(made.classes) == 0 || made.node[jsonText] == nil {
		return nil, fmt.Errorf("expected recordings of a workload and of a node")
	}
	return made, nil
}

func (t *templates) addSurroundings(r *recording) (err error) {
	recorded := fields{namespaceName: r.namespace.Name, objectUID: string(r.namespace.UID), objectVersion: recordedVersion}
	if t.namespace, err = newTemplate(r.namespace, recorded); err != nil {
		return err
	}
	r.node.Kind, r.node.APIVersion = "", ""
	recorded = fields{nodeName: r.node.Name, objectUID: string(r.node.UID), objectVersion: recordedVersion}
	t.node, err = newTemplate(r.node, recorded)
	return err
}

func (c *cluster) count(k kind) int {
	return [kinds]int{
		pods: len(c.pods), services: len(c.workloads), endpointSlices: len(c.slices),
		endpoints: len(c.workloads), namespaces: c.namespaces, nodes: c.nodes,
	}[k]
}

// The state of an object, as of this version.
func (c *cluster) object(k kind, index int, version string) render {
	switch k {
	case pods:
		p := c.pods[index]
		steps := p.workload.class.birth
		return p.as(steps[len(steps)-1], version)
	case services:
		w := c.workloads[index]
		return filled(w.class.service, w.fields, version)
	case endpointSlices:
		return c.slices[index].object(version)
	case endpoints:
		return c.workloads[index].endpointsObject(version)
	case namespaces:
		name := namespaceAt(index)
		return filled(c.templates.namespace, fields{namespaceName: name, objectUID: uidAt(k, index)}, version)
	default:
		return c.node(index, version)
	}
}

func (p *pod) as(step podStep, version string) render {
	return filled(step.template, p.fields, version)
}

func (s *slice) object(version string) render {
	values := s.fields
	values[objectVersion] = version
	return func(dst []byte, enc encoding) []byte {
		return s.workload.class.appendSlice(dst, enc, &values, s.members)
	}
}

func (w *workload) endpointsObject(version string) render {
	values := w.fields
	values[objectUID], values[objectVersion] = w.endpointsUID, version
	return func(dst []byte, enc encoding) []byte {
		return w.class.appendEndpoints(dst, enc, &values, w.members())
	}
}

func (c *cluster) node(index int, version string) render {
	return filled(c.templates.node, fields{nodeName: nodeAt(index), objectUID: uidAt(nodes, index)}, version)
}

func filled(made template, values fields, version string) render {
	values[objectVersion] = version
	return func(dst []byte, enc encoding) []byte { return made.append(dst, enc, &values) }
}

func uidAt(k kind, index int) string { return fmt.Sprintf("%08x-0000-4000-a000-%012x", k, index) }
