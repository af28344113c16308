package main

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// What differs from object to object. Every value is as long as the recorded one, so that the lengths that protobuf
// writes in front of its messages stay true when one takes the place of the other.
type field int

const (
	namespaceName field = iota
	workloadName
	templateHash // of the ReplicaSet: label pod-template-hash
	ownerUID     // of the ReplicaSet, or of the Service that a slice belongs to
	suffix       // the last five letters of a pod's or a slice's name
	objectUID
	objectVersion
	podIP
	nodeName
	fieldCount
)

type fields [fieldCount]string

type encoding int

const (
	jsonText encoding = iota
	protobuf
	encodings
)

type piece struct {
	literal []byte
	field   field // fieldCount: none
}

// A recorded object in both encodings, cut where its fields stand.
type template [encodings][]piece

// What the API server serialises an object from: the library's types marshal to the bytes that it sends.
type message interface {
	Marshal() ([]byte, error)
}

func newTemplate(object message, recorded fields) (template, error) {
	var made template
	text, err := json.Marshal(object)
	if err != nil {
		return made, err
	}
	binary, err := object.Marshal()
	if err != nil {
		return made, err
	}
	made[jsonText], made[protobuf] = cut(text, recorded), cut(binary, recorded)
	return made, nil
}

func cut(encoded []byte, recorded fields) []piece {
	var pieces []piece
	start := 0
	for at := 0; at < len(encoded); {
		found := fieldAt(encoded[at:], recorded)
		if found == fieldCount {
			at++
			continue
		}
		pieces = append(pieces, piece{encoded[start:at], found})
		at += len(recorded[found])
		start = at
	}
	return append(pieces, piece{encoded[start:], fieldCount})
}

func fieldAt(encoded []byte, recorded fields) field {
	for i, value := range recorded {
		if value != "" && bytes.HasPrefix(encoded, []byte(value)) {
			return field(i)
		}
	}
	return fieldCount
}

func (t template) append(dst []byte, enc encoding, values *fields) []byte {
	for _, p := range t[enc] {
		dst = append(dst, p.literal...)
		if p.field != fieldCount {
			dst = append(dst, values[p.field]...)
		}
	}
	return dst
}

// The two halves of a JSON template around the only occurrence of `inner`, which is a template of its own.
func splitAround(text []byte, inner []byte, recorded fields) (head, tail []piece, err error) {
	before, after, found := bytes.Cut(text, inner)
	if !found || bytes.Contains(after, inner) {
		return nil, nil, fmt.Errorf("expected %s once in %s", inner, text)
	}
	return cut(before, recorded), cut(after, recorded), nil
}

func (f *fields) fits(recorded fields) error {
	for i, value := range f {
		if recorded[i] != "" && len(value) != len(recorded[i]) {
			return fmt.Errorf("expected something as long as %q, got %q", recorded[i], value)
		}
	}
	return nil
}
