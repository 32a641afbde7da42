{{- /*
A runtime of Kubeflow Trainer: the pod of a node is that of a training job (_job.tpl), but its job is named after the
TrainJob, its command is the TrainJob's, and a container beside it submits what torchrun orders. Called as
_job.tpl is, with the runtime's name as `job`, and k: the values below `kubeflow`.
*/ -}}

{{- define "holdfast.runtime.check" -}}
{{- $at := printf "kubeflow.runtimes.%s" .name -}}
{{- range list "kind" "command" "queue" "ttlSecondsAfterFinished" -}}
{{- if hasKey $.own . -}}
{{- fail (printf "%s.%s cannot be kept: the TrainJob says it, or has no such thing; drop it" $at .) -}}
{{- end -}}
{{- end -}}
{{- range .v.flags -}}
{{- if not (regexMatch "^--[a-z][-a-z0-9]*(=.*)?$" .) -}}
{{- fail (printf "%s.flags has %q: give each as --NAME=VALUE, or as --NAME" $at .) -}}
{{- end -}}
{{- if has (splitList "=" . | first) (list "--spares" "--storage" "--mirror" "--nnodes" "--nproc-per-node" "--node-rank" "--rdzv-id") -}}
{{- fail (printf "%s.flags has %s: it has a value of its own, or the TrainJob says it" $at .) -}}
{{- end -}}
{{- end -}}
{{- if not .v.image -}}
{{- fail (printf "%s.image is empty: name the image of TrainJobs that name none, with Python 3.11 and torch" $at) -}}
{{- end -}}
{{- if and (not .root.Values.coordinator.enabled) (not .v.coordinators) -}}
{{- fail (printf "%s.coordinators is empty and this release has no coordinator: name those of the other release, host:port" $at) -}}
{{- end -}}
{{- if and (hasPrefix "file://" .v.storage.url) (not .v.storage.pvc.claimName) -}}
{{- fail (printf "%s.storage.url is %s and no claim is mounted there: set %s.storage.pvc.claimName" $at .v.storage.url $at) -}}
{{- end -}}
{{- if .v.storage.pvc.size -}}
{{- fail (printf "%s.storage.pvc.size: a runtime makes no claims; make it yourself and name it in claimName" $at) -}}
{{- end -}}
{{- $tls := .root.Values.tls -}}
{{- if and (eq $tls.from "secrets") (not (and (or .v.tls.agentSecret $tls.secrets.agent) (or .v.tls.submitSecret $tls.secrets.operator))) -}}
{{- fail (printf "tls.from is secrets: name them in tls.secrets.agent and tls.secrets.operator, or in %s.tls" $at) -}}
{{- end -}}
{{- if and (eq $tls.from "certManager") (eq .root.Values.kubeflow.kind "ClusterTrainingRuntime") (not (and .v.tls.agentSecret .v.tls.submitSecret)) -}}
{{- fail (printf "%s.tls.agentSecret and submitSecret are empty: TrainJobs of a ClusterTrainingRuntime run in namespaces where this release makes no certificates; name secrets that each of them has, or set kubeflow.kind=TrainingRuntime" $at) -}}
{{- end -}}
{{- end -}}

{{- /* Variables that name the job: the TrainJob's namespace and name, so that no two are the same. */ -}}
{{- define "holdfast.runtime.named" -}}
- name: TRAINJOB
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
- name: NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: HOLDFAST_JOB
  value: $(NAMESPACE).$(TRAINJOB)
{{- end -}}

{{- /* What the runtime says to torchrun's stand-in; flags are variables as torchrun has them. */ -}}
{{- define "holdfast.runtime.variables" -}}
- {name: PATH, value: {{ printf "/holdfast/bin:%s" .k.path | quote }}}
- {name: HOLDFAST_SLOTS, value: {{ .v.ranksPerNode | quote }}}
- {name: HOLDFAST_SPARE_NODES, value: {{ .v.spareNodes | quote }}}
- {name: HOLDFAST_NODES_MIN, value: {{ .v.nodesMin | quote }}}
- {name: HOLDFAST_GRACE_S, value: {{ sub (int .v.terminationGracePeriodSeconds) 10 | quote }}}
- {name: PET_SPARES, value: {{ .v.sparesPerNode | quote }}}
{{- with .v.storage.url }}
- {name: PET_STORAGE, value: {{ . | quote }}}
{{- end }}
{{- with .v.storage.mirror }}
- {name: PET_MIRROR, value: {{ . | quote }}}
{{- end }}
{{- range .v.flags }}
{{- $pair := splitn "=" 2 (trimPrefix "--" .) }}
- {name: PET_{{ $pair._0 | replace "-" "_" | upper }}, value: {{ ternary $pair._1 "1" (contains "=" .) | quote }}}
{{- end }}
{{- end -}}

{{- define "holdfast.runtime.submit" -}}
name: submit
image: {{ .c.image }}
imagePullPolicy: {{ .c.imagePullPolicy }}
restartPolicy: Always
args:
  - submit
  - --order=/hf/torchrun
  - --rdzv-id=$(HOLDFAST_JOB)
  - --coordinator={{ include "holdfast.job.coordinators" . }}
  {{- if not (include "holdfast.job.submitSecret" .) }}
  - --insecure
  {{- end }}
env:
  {{- include "holdfast.runtime.named" . | nindent 2 }}
  {{- if include "holdfast.job.submitSecret" . }}
  {{- include "holdfast.tls.env" "/etc/holdfast/tls" | nindent 2 }}
  {{- end }}
securityContext: {{- include "holdfast.locked" . | nindent 2 }}
resources:
  requests: {cpu: 50m, memory: 128Mi}
  limits: {memory: 512Mi}
volumeMounts:
  - {name: run, mountPath: /hf}
  {{- if include "holdfast.job.submitSecret" . }}
  - {name: submit-tls, mountPath: /etc/holdfast/tls, readOnly: true}
  {{- end }}
{{- end -}}

{{- /* The pod of a node, as of a training job, with what is different. */ -}}
{{- define "holdfast.runtime.pod" -}}
{{- $named := include "holdfast.runtime.named" . | fromYamlArray -}}
{{- $text := include "holdfast.job.pod" (merge (dict "restart" "Never") .) | replace (printf "--jobs=%s" .job) "--jobs=$(HOLDFAST_JOB)" -}}
{{- $pod := fromYaml $text -}}
{{- $agent := index $pod.spec.initContainers 1 -}}
{{- $_ := set $agent "env" (concat $named $agent.env) -}}
{{- $node := index $pod.spec.containers 0 -}}
{{- $_ := set $node "name" "node" -}}
{{- $_ := set $node "env" (concat $named (include "holdfast.runtime.variables" . | fromYamlArray) $node.env) -}}
{{- $_ := unset $node "command" -}}
{{- $submit := include "holdfast.runtime.submit" . | fromYaml -}}
{{- $_ := set $pod.spec "initContainers" (append $pod.spec.initContainers $submit) -}}
{{- with include "holdfast.job.submitSecret" . -}}
{{- $secret := dict "name" "submit-tls" "secret" (dict "secretName" . "defaultMode" 288) -}}
{{- $_ := set $pod.spec "volumes" (append $pod.spec.volumes $secret) -}}
{{- end -}}
{{- toYaml $pod -}}
{{- end -}}

{{- define "holdfast.runtime" -}}
apiVersion: trainer.kubeflow.org/v1alpha1
kind: {{ .k.kind }}
metadata:
  name: {{ .job }}
  labels: {{- include "holdfast.job.labels" (dict "component" "trainer" "job" .job "c" .c) | nindent 4 }}
    trainer.kubeflow.org/framework: torch
    {{- with .v.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with .v.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  mlPolicy:
    numNodes: {{ add (int .v.nodes) (int .v.spareNodes) }}
    torch: {}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
              # Pods that are lost are replaced; a job that failed for good (41), was refused (2) or has no Python (127) is not begun again.
              backoffLimit: 1000000
              podFailurePolicy:
                rules:
                  - action: FailJob
                    onExitCodes: {containerName: node, operator: In, values: [2, 41, 127]}
              {{- if .c.successPolicy }}
              successPolicy:
                rules:
                  - succeededCount: 1
              {{- end }}
              template: {{- include "holdfast.runtime.pod" . | nindent 16 }}
{{- end -}}

{{- /* TrainJobs are not known yet: the certificate of their agents speaks for any node, that of the submitter for any job. */ -}}
{{- define "holdfast.runtime.certificates" -}}
{{- $text := include "holdfast.job.certificates" . -}}
{{- $agent := printf "/agent/%s-nodes-*%s" .job (include "holdfast.job.of" .) -}}
{{- $submit := printf "/operator/%s-submit?job=%s" .job .job -}}
{{- $text | replace $agent "/agent/*" | replace $submit (printf "/operator/%s-submit" .job) -}}
{{- end -}}
