-- A plan is handed to the cluster manager, or was only advised.
UPDATE plans SET emitted_at = $now WHERE plan_id = $plan_id AND emitted_at IS NULL;
