import { InputError } from '../base/errors.js';
import type { JsonObject } from '../base/json.js';
import { fieldError, isSet } from './config-fields.js';
import type { ActivationKind } from './model-config.js';

/** Names of transformers' activation table that Waybill computes (transformers `activations.py`, `ACT2FN`). */
const kinds: Readonly<Record<string, ActivationKind>> = {
  relu: 'relu',
  relu2: 'relu2',
  fatrelu: 'fatrelu',
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_python: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_fast: 'gelu_tanh',
  gelu_accurate: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
  gelu_python_tanh: 'gelu_tanh',
  quick_gelu: 'quick_gelu',
  sigmoid: 'sigmoid',
  tanh: 'tanh',
  linear: 'identity',
};

/** FATReLU's threshold, as the configurations of MiniCPM-S write it. */
const thresholdField = 'hidden_act_param';

/**
 * Reads the activation that `field` names. Throws `InputError`: `unknown-activation` for a name outside the table,
 * `config-missing` where the field, or FATReLU's threshold, is absent; there is no default to fall back to.
 */
export function readActivation(
  config: JsonObject,
  field: 'activation_function' | 'hidden_act',
): { activation: ActivationKind; activationThreshold: number } {
  const name = config[field];
  const wanted = `the name of an activation (${Object.keys(kinds).join(', ')})`;
  if (typeof name !== 'string') throw fieldError('config.json', field, name, wanted);
  const activation = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  if (activation === undefined) {
    throw new InputError(
      'unknown-activation',
      `Reading config.json failed: "${field}" is ${JSON.stringify(name.slice(0, 100))}, an activation that Waybill does not compute; wanted is ${wanted}`,
      { field, activation: name },
    );
  }
  return { activation, activationThreshold: activation === 'fatrelu' ? readThreshold(config) : 0 };
}

function readThreshold(config: JsonObject): number {
  const value = config[thresholdField];
  // Below zero the activation of an untouched input, x = 0, would not be zero.
  if (typeof value !== 'number' || !(value >= 0) || !Number.isFinite(Math.fround(value))) {
    const absent = isSet(config, thresholdField) ? value : undefined;
    throw fieldError('config.json', thresholdField, absent, 'the threshold of fatrelu, a number from 0');
  }
  return value;
}
