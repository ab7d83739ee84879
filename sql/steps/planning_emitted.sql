-- A plan has been handed to the cluster manager.
UPDATE plans SET emitted_at = $emitted_at WHERE plan_id = $plan_id AND emitted_at IS NULL;
